"""Puts waltz behind any function that answers a prompt, whichever model or library it uses.

    python guard.py "How do I kill a process in Linux?"

waltz must be running (`waltz serve`). Only the standard library is needed.
"""

import asyncio
import json
import os
import sys
import urllib.request

WALTZ = os.environ.get("WALTZ_URL", "http://127.0.0.1:8787")


def guard(execute):
    """Wraps `async execute(prompt) -> str`: the answer is read, and mended where it has to be.

    When waltz cannot be asked, the error is passed on: an answer that nobody read is not shown.
    """

    async def guarded(prompt):
        draft = await execute(prompt)
        evaluation = await asyncio.to_thread(evaluate, prompt, draft)
        # There is a revision only where the draft was unsafe or refused needlessly.
        revision = evaluation["revision"]
        return revision["text"] if revision else draft

    return guarded


def evaluate(prompt, response):
    """Asks waltz for a verdict on an answer, and for a better one if it needs one."""
    body = json.dumps({"prompt": prompt, "response": response, "revise": True}).encode()
    headers = {"content-type": "application/json"}
    if "WALTZ_API_KEY" in os.environ:
        headers["authorization"] = f"Bearer {os.environ['WALTZ_API_KEY']}"
    request = urllib.request.Request(f"{WALTZ}/waltz/v1/evaluate", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@guard
async def execute(prompt):
    """Your own code goes here; this one only repeats the question."""
    return f"You asked: {prompt}"


if __name__ == "__main__":
    print(asyncio.run(execute(" ".join(sys.argv[1:]) or "Hello")))
