"""Prints docs/reference/configuration.md from the schema of the program; called by `cargo xtask generate`.

    waltz config schema | python3 docs/generate_configuration.py

Keys, defaults and descriptions come from the schema on standard input. What a schema cannot say (ranges,
environment, what needs a restart) stands in the tables below; an entry for a key that the schema does not
have ends the run, so that they cannot go stale. Standard library only.
"""

import json
import sys

# Key -> what is allowed, for keys whose type alone does not say it. Checked in crates/waltz/src/config/build.rs.
ALLOWED = {
    "server.listen": "address and port; loopback while there are no `[[keys]]`",
    "server.data_dir": "a folder, relative to the file",
    "server.max_body_bytes": "1024 to 1073741824",
    "server.heartbeat_ms": "1 to 3600000",
    "server.client_timeout_ms": "1 to 3600000",
    "server.header_timeout_ms": "1 to 3600000",
    "server.body_timeout_ms": "1 to 3600000",
    "server.max_connections_per_peer": "1 to 1000000",
    "server.drain_timeout_ms": "0 to 600000",
    "waltz.stage": "1, 2",
    "waltz.traffic_percentage": "0 to 100",
    "waltz.safety_threshold": "0 to 1",
    "upstreams.name": "a name, unique",
    "upstreams.url": "http or https, without credentials, query, fragment; no metadata address; or `local:` and a model that was pulled",
    "upstreams.key_env": "the name of a variable that is set; not with `key_file`",
    "upstreams.key_file": "a file, relative to the file; not with `key_env`",
    "upstreams.models": "at least one",
    "upstreams.connect_timeout_ms": "1 to 3600000",
    "upstreams.first_byte_timeout_ms": "1 to 3600000",
    "upstreams.chunk_timeout_ms": "1 to 3600000",
    "upstreams.total_timeout_ms": "1 to 3600000",
    "upstreams.max_concurrent": "1 to 100000",
    "upstreams.max_answer_bytes": "1024 to 1073741824",
    "upstreams.adapters": "files, relative to the file, for a `local:` model: `conversation`, and `feedback` where `feedback.targets` asks this upstream",
    "agents.name": "a name, unique",
    "agents.targets": "at least one `{ upstream, model }`",
    "agents.task_types": "names",
    "agents.skills": "names",
    "agents.success_rate": "0 to 1",
    "agents.max_concurrent": "1 or more",
    "rules.id": "a name, unique",
    "rules.task_type": "a name",
    "rules.conditions": "key to text, number, `true` or `false`",
    "rules.agent": "the name of an agent",
    "rules.explanation": "one line of text",
    "routing.max_tasks": "1 to 10000",
    "routing.max_parallel": "1 to 1000",
    "routing.max_planned_tasks": "1 to 100000",
    "routing.max_result_bytes": "1024 to 1073741824",
    "routing.run_timeout_ms": "1 to 86400000",
    "routing.security_task_types": "names",
    "routing.security_skill": "a name",
    "variants.least_share": "0 to 1",
    "variants.epsilon": "0 to 1",
    "variants.ucb_c": "0 or more",
    "variants.linucb_alpha": "0 or more",
    "variants.auto_apply_q": "0 to 1",
    "variants.auto_apply_e": "1 or more",
    "variants.floor_q": "above 0 and below 1",
    "variants.approval_q": "0 to 1",
    "variants.min_gain": "0 to 1",
    "variants.subject_window": "`subject_cap` to 10000",
    "proposals.weak_q": "0 to 1",
    "proposals.promote_gap": "0 to 1",
    "proposals.expire_days": "1 to 3650",
    "rollback.alpha": "above 0 and below 1",
    "rollback.horizon": "1 or more",
    "rollback.window": "5 to 1000",
    "rollback.success_drop": "above 0 and below 1",
    "rollback.reward_drop": "above 0 and below 1",
    "rollback.error_increase": "above 0",
    "rollback.cooldown_seconds": "0 or more",
    "release.profile": "`standard`, `7day`, `4week`",
    "release.promote_e": "1 or more",
    "release.non_inferiority": "above 0 and below 1",
    "release.max_asr": "0 to 1",
    "release.max_orr": "0 to 1",
    "release.max_ftr": "0 to 1",
    "release.max_overhead_ms": "above 0",
    "release.abort_asr": "above 0 and below 1",
    "release.abort_orr": "above 0 and below 1",
    "release.abort_alpha": "above 0 and below 1",
    "webhooks.url": "http or https, without credentials; no metadata address; redirects are not followed",
    "webhooks.secret_env": "the name of a variable that holds 16 characters or more",
    "webhooks.timeout_ms": "1 to 3600000",
    "feedback.targets": "any number of `{ upstream, model }`",
    "judge.weights": "a file, relative to the file; trained for the model `smollm2`",
    "judge.timeout_ms": "1 to 3600000",
    "judge.families": "the id of a family of [screen.md](screen.md) to `off`, `soft`, `on` or a severity from 0 to 1",
    "judge.categories": "a category to `{ threshold }`, 0 to 1",
    "judge.allow": "texts, or expressions such as `/ticket-[0-9]+/`",
    "feedback.timeout_ms": "1 to 3600000",
    "coach.max_rounds": "0 to 10",
    "coach.max_added_tokens": "0 or more",
    "policy.default_task_type": "a name",
    "policy.critical_task_types": "names",
    "policy.task_types": "name to depth: `none`, `rules`, `flagged`, `always`",
    "policy.routes": "`/v1/chat/completions`, `/v1/messages`, `/waltz/v1/evaluate`, `/waltz/v1/run` to depth",
    "policy.rules_file": "a file, relative to the file; format: [screen.md](screen.md)",
    "pii.answer": "`allow`, `tag`, `mask`, `hash`, `refuse`",
    "pii.record": "`allow`, `mask`, `hash`",
    "pii.hash_key_env": "the name of a variable that is set, with at least 16 bytes; needed where an action is `hash`",
    "pii.kinds": "kind to actions; kinds: [screen.md](screen.md#personal-data-and-secrets)",
    "record.max_journal_bytes": "1048576 to 17592186044416",
    "retry.max_retries": "0 to 5",
    "retry.pause_ms": "1 to 2000",
    "idempotency.keep_ms": "1 to 86400000",
    "idempotency.max_bytes": "1048576 to 17179869184",
    "keys.name": "a name, unique",
    "keys.tenant": "a name",
    "keys.sha256": "64 hex digits",
}

# Keys that are read and checked, and that nothing uses yet.
WITHOUT_EFFECT = [
    "waltz.tier3_capture",
]

# Keys that are read at start only.
AT_START = [
    "server.listen",
    "server.data_dir",
    "server.drain_timeout_ms",
    "record.durability",
    "record.max_journal_bytes",
    "record.database_url_env",
]

# Variable, older names, key, what its text may be. From crates/waltz/src/config/environment.rs.
VARIABLES = [
    ("ENABLE_WALTZRL", ["WALTZRL_ENABLED"], "waltz.enabled", "bool"),
    ("WALTZRL_STAGE", [], "waltz.stage", "1 or 2"),
    ("WALTZRL_TRAFFIC_PERCENTAGE", ["WALTZRL_ROLLOUT_PERCENTAGE"], "waltz.traffic_percentage", "0 to 100"),
    ("WALTZRL_SAFETY_THRESHOLD", ["WALTZRL_MIN_SAFETY_SCORE"], "waltz.safety_threshold", "0 to 1"),
    (
        "WALTZRL_BLOCK_ON_FAILURE",
        ["WALTZRL_BLOCK_UNSAFE", "WALTZRL_ENABLE_BLOCKING"],
        "waltz.block_on_failure",
        "bool",
    ),
    ("ENABLE_WALTZRL_SAFETY_BENCHMARKS", [], "waltz.safety_benchmarks", "bool"),
    ("WALTZRL_FEEDBACK_ONLY", [], "waltz.feedback_only", "bool"),
    ("ENABLE_TIER3_CAPTURE", [], "waltz.tier3_capture", "bool"),
]

HEAD = """\
# Configuration

Generated by `cargo xtask generate` from the program; do not edit. The schema is in
[`configuration.schema.json`](configuration.schema.json).

One TOML file: `--config FILE`, else `waltz.toml` in the folder where the command runs, else defaults. The
command line goes before the environment, the environment before the file, the file before the default.
`waltz config show` prints every effective value with its origin, `waltz config check` names every mistake
at once. Unknown keys are mistakes. A name is 1 to 64 letters, digits or any of `. _ -`.

The file and the rules file are read again within a second of a change, and a mistake leaves the running
configuration in place. The environment and these keys are read at start only:
{at_start}.
"""

ENVIRONMENT_HEAD = """
## Environment

`bool` is true, false, 1, 0, yes or no. An older name works and gives a warning; a variable that begins with
`WALTZRL_` and is not in this table gives one too.

| variable | older names | key | allowed |
|---|---|---|---|
"""

ENVIRONMENT_TAIL = """
Also read: `OPENAI_API_KEY` (when no upstream is configured, OpenAI answers with it), the variables that
`upstreams.key_env` names, `XDG_DATA_HOME` and `HOME` (the data folder is `$XDG_DATA_HOME/waltz`, else
`$HOME/.local/share/waltz`), `WALTZ_MODELS` (the models folder, else `models` in the data folder), `HF_ENDPOINT` (the
hub of `waltz model pull hf:...`), `WALTZ_LOG`, the log filter of `waltz serve` (default `warn,waltz=info`), and
OpenTelemetry's `OTEL_*`: see [telemetry](../guides/telemetry.md).
"""


def main():
    schema = json.load(sys.stdin)
    definitions = schema["$defs"]
    page = [HEAD.format(at_start=", ".join(f"`{key}`" for key in AT_START)), ENVIRONMENT_HEAD]
    for name, older, key, allowed in VARIABLES:
        aliases = ", ".join(f"`{alias}`" for alias in older)
        page.append(f"| `{name}` | {aliases} | `{key}` | {allowed} |\n")
    page.append(ENVIRONMENT_TAIL)
    known = set()
    for section, value in schema["properties"].items():
        is_list = value.get("type") == "array"
        reference = value["items"]["$ref"] if is_list else value["$ref"]
        definition = definitions[reference.rsplit("/", 1)[1]]
        title = f"[[{section}]]" if is_list else f"[{section}]"
        page.append(f"\n## `{title}`\n\n{words(value['description'])}\n\n")
        page.append("| key | default | allowed | meaning |\n|---|---|---|---|\n")
        for name, field in definition["properties"].items():
            key = f"{section}.{name}"
            known.add(key)
            page.append(row(key, name, field, definitions))
    check(known)
    sys.stdout.write("".join(page))


def row(key, name, field, definitions):
    meaning = words(field.get("description", ""))
    if key in WITHOUT_EFFECT:
        meaning += " Checked, and without effect in this version."
    return f"| `{name}` | {default(field)} | {allowed(key, field, definitions)} | {meaning} |\n"


def default(field):
    value = field.get("default")
    if value is None or value in ("", [], {}):
        return "none"
    return f"`{json.dumps(value)}`".replace("|", "\\|")


def allowed(key, field, definitions):
    if key in ALLOWED:
        return ALLOWED[key]
    if "$ref" in field:
        choices = definitions[field["$ref"].rsplit("/", 1)[1]]["oneOf"]
        return "; ".join(f"`{choice['const']}`: {plain(choice['description'])}" for choice in choices)
    kind = field.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    return {"boolean": "`true`, `false`", "string": "a text", "integer": "a whole number"}.get(kind, kind)


def words(text):
    return " ".join(text.split()).replace("|", "\\|")


def plain(text):
    text = words(text).removesuffix(".")
    return text[:1].lower() + text[1:]


def check(known):
    listed = [*ALLOWED, *WITHOUT_EFFECT, *AT_START, *(key for _, _, key, _ in VARIABLES)]
    stale = sorted(key for key in set(listed) if key not in known)
    if stale:
        sys.exit(f"error: the schema does not have {', '.join(stale)}; change docs/generate_configuration.py")


if __name__ == "__main__":
    main()
