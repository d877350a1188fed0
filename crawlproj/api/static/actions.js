// What can be done with a crawl, and the questions asked before. A refusal is shown beside the buttons.

import { jobPath, Problem, query, request, token } from "./api.js";
import { announce, foreign, h, setAttribute, setText, show } from "./dom.js";
import { sentence } from "./form.js";
import { bytes, count, counted, line } from "./format.js";
import { isOver } from "./state.js";

const FORMATS = [
  ["parquet", "Parquet", "tables, data frames, SQL"],
  ["jsonl", "JSON lines", "one object a page"],
  ["csv", "CSV", "spreadsheets"],
  ["warc", "WARC", "archives; responses if stored as WARC"],
];

export function toolbar(id, live, onJob, signal) {
  const refusal = h("p", { class: "problem", role: "alert", hidden: true });
  const act = (work) => attempt(work, refusal);
  const change = (verb, body) =>
    act(async () => onJob(await request(jobPath(id, `/${verb}`), { method: "POST", body })));
  const button = (label, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, label);

  const pause = live.shown(
    button("Pause", () => change("pause")),
    (job) => ["processing", "pending"].includes(job.state),
  );
  const resume = live.shown(
    button("Resume", () => resumeJob(live.job, (body) => change("resume", body)), "main"),
    (job) => ["paused", "stopped", "failed"].includes(job.state),
  );
  const stop = live.shown(
    button("Stop", async () => {
      const text = "Downloads in flight end, what was fetched is stored. It can be resumed later.";
      if (await confirmed("Stop this crawl?", [h("p", {}, text)], "Stop")) change("stop");
    }),
    (job) => !isOver(job),
  );
  const seeds = button("Add seeds", () => addSeeds(id, act));
  const remove = live.shown(
    button("Delete", () => removeJob(id, act, live.job), "danger"),
    isOver,
  );
  live.add((job) => (live.job = job));

  return h(
    "section",
    { class: "toolbar", "aria-label": "Actions" },
    h(
      "div",
      { class: "actions" },
      pause,
      resume,
      stop,
      shardsForm(live, (shards) => change("shards", { shards })),
      seeds,
      exportMenu(id, act, live, signal),
      remove,
    ),
    refusal,
  );
}

async function attempt(work, refusal) {
  show(refusal, false);
  try {
    return await work();
  } catch (error) {
    const fields = error instanceof Problem ? error.fields : [];
    refusal.replaceChildren(
      line(error.message, 600),
      ...fields.slice(0, 10).map((one) => h("span", {}, " ", sentence(one))),
    );
    show(refusal, true);
    return null;
  }
}

function shardsForm(live, onChange) {
  const input = h("input", {
    id: "shards",
    type: "number",
    min: "1",
    max: "64",
    step: "1",
    inputmode: "numeric",
  });
  const form = h(
    "form",
    { class: "field inline", novalidate: true },
    h("label", { for: "shards" }, "Shards"),
    input,
    h("button", {}, "Set"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value) onChange(Number(input.value));
  });
  live.add((job) => {
    // Not while somebody types.
    if (document.activeElement !== input && input.value !== String(job.shards))
      input.value = job.shards ?? "";
  });
  return live.shown(form, (job) => job.mode !== "single" && !isOver(job));
}

// Returns whether the person agreed. *typed*: a word that must be typed first. *isNotice*: there is nothing to refuse.
export function confirmed(title, content, label, { typed = "", isNotice = false } = {}) {
  return new Promise((resolve) => {
    const word = h("input", { id: "typed", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
    const yes = h("button", { class: typed ? "danger main" : "main", value: "yes" }, label);
    const check = () => setAttribute(yes, "disabled", typed && word.value !== typed ? "" : null);
    word.addEventListener("input", check);
    check();
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      content,
      typed
        ? [h("label", { for: "typed" }, "Type ", foreign(typed, 200, "code"), " to confirm"), word]
        : null,
      h(
        "div",
        { class: "actions" },
        yes,
        isNotice ? null : h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
      ),
    );
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" && (!typed || word.value === typed));
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// A crawl that has reached a limit needs a higher one.
async function resumeJob(job, resume) {
  const limit = { max_pages: "pages", max_seconds: "seconds", max_bytes: "bytes" }[job.reason];
  if (job.state !== "stopped" || !limit) return resume();
  const input = h("input", {
    id: "new-limit",
    type: "number",
    min: "0",
    step: "1",
    value: String(2 * job.limits[job.reason]),
  });
  const content = [
    h(
      "p",
      {},
      `It stopped at its limit of ${count(job.limits[job.reason])} ${limit}. To continue, it needs a higher one.`,
    ),
    h("label", { for: "new-limit" }, `New limit in ${limit}, 0 for none`),
    input,
  ];
  if (await confirmed("Resume this crawl?", content, "Resume")) resume({ [job.reason]: Number(input.value) });
}

// What was typed but refused is there again next time.
let draft = "";

async function addSeeds(id, act) {
  const input = h("textarea", { id: "more-seeds", rows: "6", spellcheck: "false", autocapitalize: "off" });
  const content = [
    h("label", { for: "more-seeds" }, "Domains or URLs, separated by spaces, commas or lines"),
    input,
  ];
  input.value = draft;
  const isAgreed = await confirmed("Add seeds", content, "Add");
  draft = input.value;
  if (!isAgreed || !draft.trim()) return;
  await act(async () => {
    const answer = await request(jobPath(id, "/seeds"), { method: "POST", body: { seeds: draft } });
    draft = "";
    const invalid = answer.invalid ?? [];
    const rows = invalid.slice(0, 20).map((one) => h("li", {}, sentence(one)));
    await confirmed(
      "Seeds added",
      [
        h(
          "p",
          {},
          `${count(answer.new)} new, ${count(answer.known)} known already${invalid.length ? `, ${count(invalid.length)} not valid:` : "."}`,
        ),
        rows.length ? h("ul", { class: "problem" }, rows) : null,
      ],
      "OK",
      { isNotice: true },
    );
  });
}

async function removeJob(id, act, job) {
  const pages = h("input", { type: "checkbox", id: "with-pages" });
  const content = [
    h("p", {}, "Its URLs, counters and dead letters in Redis are deleted, and cannot be brought back."),
    h(
      "label",
      { class: "choice" },
      pages,
      h(
        "span",
        {},
        `Delete its ${counted(job?.pages_stored ?? 0, "stored page")} on disk, too; otherwise they are set aside`,
      ),
    ),
  ];
  if (!(await confirmed("Delete this crawl?", content, "Delete", { typed: id }))) return;
  await act(async () => {
    await request(jobPath(id, query({ pages: pages.checked ? "true" : "" })), { method: "DELETE" });
    announce(`Crawl ${id} deleted`);
    location.hash = "#/";
  });
}

function exportMenu(id, act, live, signal) {
  const note = h("p", { class: "faint", role: "status" });
  const links = (items) =>
    FORMATS.filter(([format]) => !items || format !== "warc").map(([format, label, what]) => {
      const given = { format, items: items ? "true" : "" };
      const link = h(
        "a",
        { href: jobPath(id, `/export${query(given)}`), download: "", "data-format": format },
        label,
      );
      link.addEventListener("click", (event) => {
        // A link cannot carry a token.
        if (!token()) return;
        event.preventDefault();
        act(() => download(id, { format, items }, note));
      });
      return h("li", {}, link, h("small", { class: "faint" }, items ? "items" : what));
    });
  const items = live.shown(
    h("div", {}, h("p", { class: "faint" }, "What its spider has scraped"), h("ul", {}, links(true))),
    // Ours scrapes nothing but pages.
    (job) => job.spider && job.spider !== "web",
  );
  const menu = h(
    "details",
    { class: "menu" },
    h("summary", { class: "button" }, "Export"),
    h("div", { class: "card" }, h("ul", {}, links(false)), items, note),
  );
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.firstElementChild.focus();
  });
  document.addEventListener(
    "click",
    (event) => {
      if (!menu.contains(event.target)) menu.open = false;
    },
    { signal },
  );
  return menu;
}

// The browser saves the file itself, by a link that is valid once.
async function download(id, body, note) {
  setText(note, "Preparing the file …");
  try {
    const link = await request(jobPath(id, "/export-link"), { method: "POST", body, patience: 0 });
    h("a", { href: link.url.slice(1), download: "" }).click();
    setText(note, `${bytes(link.bytes)}, saved by the browser.`);
  } catch (error) {
    setText(note, "");
    throw error;
  }
}
