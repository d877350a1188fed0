// Talks to the server: requests with a token, problems as errors, the stream of a job, and whether it is reachable.

import { announce, h, setText, show } from "./dom.js";

const PATIENCE_MS = 20_000;
// The server sends a comment every 15 s.
const SILENCE_MS = 40_000;
const FIRST_WAIT_S = 1;
const LAST_WAIT_S = 30;

// What the server refused, as problem+json says it.
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server answered with status ${status}.`);
    this.status = status;
    this.body = body;
    this.fields = Array.isArray(body.errors) ? body.errors : [];
  }
}

// The server did not answer at all.
export class Lost extends Error {}

const TOKEN = "crawlproj-token";

export const token = () => sessionStorage.getItem(TOKEN) ?? "";

function headers(more = {}) {
  return token() ? { Authorization: `Bearer ${token()}`, ...more } : more;
}

export const jobPath = (id, rest = "") => `api/jobs/${encodeURIComponent(id)}${rest}`;

export function query(parameters) {
  const given = Object.entries(parameters).filter(
    ([, value]) => value !== "" && value !== null && value !== undefined,
  );
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

// Returns the JSON of an answer, null without content. Asks for a token on 401 and repeats the request with it.
export async function request(path, options = {}) {
  const answer = await send(path, options);
  if (answer.status === 204) return null;
  return answer.json();
}

export async function send(path, { method = "GET", body, more = {}, signal, patience = PATIENCE_MS } = {}) {
  for (;;) {
    const options = { method, headers: headers(more), cache: "no-store", credentials: "omit" };
    if (body !== undefined) {
      options.body = JSON.stringify(body);
      options.headers["Content-Type"] = "application/json";
    }
    const used = token();
    const answer = await fetchWithin(path, options, signal, patience);
    if (answer.status === 401) {
      await askForToken(used);
      continue;
    }
    if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
    return answer;
  }
}

async function fetchWithin(path, options, signal, patience) {
  const timer = new AbortController();
  const timeout = patience ? setTimeout(() => timer.abort(), patience) : 0;
  try {
    const answer = await fetch(path, {
      ...options,
      signal: AbortSignal.any([timer.signal, ...(signal ? [signal] : [])]),
    });
    // A proxy answers these while the server restarts.
    if ([502, 504].includes(answer.status)) throw new Lost("The server is not reachable.");
    connection.found();
    return answer;
  } catch (error) {
    if (signal?.aborted) throw error;
    connection.missing();
    throw error instanceof Lost ? error : new Lost("The server did not answer.");
  } finally {
    clearTimeout(timeout);
  }
}

// Whether the server answers, shown on every view. Views listen to `back`.
class Connection extends EventTarget {
  isLost = false;
  #since = null;
  #attempt = 0;
  #retryAt = 0;
  #timer = 0;

  found() {
    this.#attempt = 0;
    clearInterval(this.#timer);
    if (!this.isLost) return;
    this.isLost = false;
    document.body.classList.remove("stale");
    show(document.getElementById("lost"), false);
    announce("Connected again");
    this.dispatchEvent(new Event("back"));
  }

  missing() {
    if (!this.isLost) {
      announce("Connection lost, trying again");
      this.#since = new Date();
    }
    this.isLost = true;
    document.body.classList.add("stale");
    show(document.getElementById("lost"), true);
    this.#wait();
  }

  #wait() {
    if (this.#retryAt > Date.now()) return;
    const wait = Math.min(LAST_WAIT_S, FIRST_WAIT_S * 2 ** this.#attempt) * (0.8 + 0.4 * Math.random());
    this.#attempt += 1;
    this.#retryAt = Date.now() + wait * 1000;
    clearInterval(this.#timer);
    const text = document.getElementById("lost-text");
    const tick = () => {
      const left = Math.ceil((this.#retryAt - Date.now()) / 1000);
      const when = left > 0 ? `in ${left} s` : "now";
      setText(
        text,
        `Connection lost, trying again ${when}. Crawls continue; what you see is from ${this.#since.toLocaleTimeString("en-GB")}.`,
      );
      if (left <= 0) this.tryNow();
    };
    this.#timer = setInterval(tick, 500);
    tick();
  }

  async tryNow() {
    if (!this.isLost) return;
    clearInterval(this.#timer);
    this.#retryAt = 0;
    // Any answer will do, also a refusal.
    await send("api/health", { patience: 5000 }).catch(() => null);
  }
}

export const connection = new Connection();

// Calls *onJob* with each new state of a job until *signal* is aborted; reconnects by itself. A tab in the
// background lets its connection go: browsers allow only six to a server.
export async function follow(id, onJob, onGone, signal) {
  while (!signal.aborted) {
    if (document.hidden) {
      await event(document, "visibilitychange", signal);
      continue;
    }
    try {
      await readStream(jobPath(id, "/events"), onJob, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && [404, 410].includes(error.status)) return onGone(error);
      if (error instanceof Problem) await pause(3000, signal);
    }
    if (connection.isLost) await event(connection, "back", signal);
    else await pause(500, signal);
  }
}

async function readStream(path, onJob, signal) {
  const ours = new AbortController();
  const stop = () => ours.abort();
  const onHidden = () => document.hidden && stop();
  signal.addEventListener("abort", stop);
  document.addEventListener("visibilitychange", onHidden);
  let watchdog = setTimeout(stop, SILENCE_MS);
  try {
    const answer = await send(path, {
      signal: ours.signal,
      patience: 0,
      more: { Accept: "text/event-stream" },
    });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, SILENCE_MS);
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const { name, data } of blocks.map(parseEvent)) {
        if (name === "job") onJob(JSON.parse(data));
        if (name === "gone") throw new Problem(404, {});
      }
    }
  } catch (error) {
    if (signal.aborted || document.hidden) throw error;
    if (!(error instanceof Problem)) connection.missing();
    throw error;
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener("abort", stop);
    document.removeEventListener("visibilitychange", onHidden);
    stop();
  }
  // An end without an error: the server is shutting down, or has had enough of us. See which.
  await send("api/health", { patience: 5000 }).catch(() => null);
}

function parseEvent(block) {
  const event = { name: "message", data: "" };
  for (const row of block.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(row);
    if (field === "event") event.name = value;
    if (field === "data") event.data += value;
  }
  return event;
}

function event(target, name, signal) {
  return new Promise((resolve) => {
    const done = () => {
      target.removeEventListener(name, done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    target.addEventListener(name, done);
    signal.addEventListener("abort", done);
  });
}

// Loads a part of this page, as often as it takes: the server may be restarting.
export async function loaded(load) {
  for (;;) {
    try {
      return await load();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      connection.missing();
      await event(connection, "back", new AbortController().signal);
    }
  }
}

export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

// Calls *work* now and then every *ms* while the tab is seen and the server reachable, until *signal* is aborted.
export async function repeat(ms, work, signal) {
  while (!signal.aborted) {
    if (document.hidden) await event(document, "visibilitychange", signal);
    else if (connection.isLost) await event(connection, "back", signal);
    if (signal.aborted) return;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Lost) && !signal.aborted && !(error instanceof Problem)) throw error;
    }
    await pause(ms, signal);
  }
}

let asking = null;

// However many requests were refused, one question; they go on when there is another token than the one they used.
function askForToken(used) {
  if (token() !== used) return Promise.resolve();
  asking ??= new Promise((resolve) => {
    const input = h("input", {
      id: "token",
      type: "password",
      autocomplete: "off",
      spellcheck: "false",
      required: true,
    });
    const hint = h(
      "p",
      { class: "faint", id: "token-hint" },
      used
        ? "The server refused that token. Check it, or ask whoever runs the server."
        : "This server requires a token: the word after read or write in CRAWL_API_TOKENS or CRAWL_API_TOKENS_FILE. It is kept until you close this tab.",
    );
    input.setAttribute("aria-describedby", "token-hint");
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "token-title" }, "Token"),
      hint,
      h("label", { for: "token" }, "Token"),
      input,
      h("div", { class: "actions" }, h("button", { class: "main" }, "Continue")),
    );
    const dialog = h("dialog", { "aria-labelledby": "token-title" }, form);
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    form.addEventListener("submit", () => {
      sessionStorage.setItem(TOKEN, input.value.trim());
      dialog.remove();
      asking = null;
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
}
