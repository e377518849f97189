// The page of the kill switch: it reads and posts to /waltz/v1/releases with the token that was typed in, which is kept
// nowhere. Texts are set as text, so that nothing in them is markup.
"use strict";

const element = (id) => document.getElementById(id);

async function call(method, path, body) {
  const headers = { authorization: `Bearer ${element("token").value}` };
  // The header takes no spaces or other letters, and a name must not keep anybody from stopping.
  const by = element("by").value.trim().replace(/[^A-Za-z0-9._:-]+/g, "_");
  if (by) headers["x-waltz-by"] = by;
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(`/waltz/v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error?.message ?? `status ${answer.status}`);
  return value;
}

function tell(text) {
  element("state").textContent = text;
}

async function show() {
  const { paused, data } = await call("GET", "releases");
  tell(paused
    ? `Everything is stopped, by ${paused.by} since ${paused.at}${paused.reason ? `: ${paused.reason}` : ""}.`
    : "Nothing is stopped.");
  const rows = element("releases").tBodies[0];
  rows.replaceChildren(...data.map((release) => {
    const row = document.createElement("tr");
    for (const text of [release.id, release.scope, release.candidate, `${release.percent} %`, release.status]) {
      row.insertCell().textContent = text;
    }
    return row;
  }));
  element("releases").hidden = data.length === 0;
}

async function act(work) {
  const buttons = document.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    await work();
    await show();
  } catch (error) {
    tell(`That did not work: ${error.message}`);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

function turn(command) {
  const reason = element("reason").value.trim();
  return act(() => call("POST", "releases/all", reason ? { command, reason } : { command }));
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  act(async () => {});
});
element("pause").addEventListener("click", () => turn("pause"));
element("resume").addEventListener("click", () => turn("resume"));
