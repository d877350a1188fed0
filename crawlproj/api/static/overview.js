// The numbers of a crawl, from the frontier to the disk, its speed, failures, processes, newest pages and rules.

import { adviceFor } from "./advice.js";
import { jobPath, query, repeat, request } from "./api.js";
import { speedChart } from "./chart.js";
import { h, keep, Live, setAttribute, setText, show, table } from "./dom.js";
import { bytes, count, duration, line, percent } from "./format.js";
import { pageRow } from "./pagerow.js";
import { processTables } from "./processes.js";
import { isOver } from "./state.js";

const RECENT = 6;
const RECENT_MS = 5000;
const MOST_REASONS = 30;

// Three steps of a page's way: label, number, what it means.
const STEPS = {
  Frontier: [
    ["URLs known", (job) => count(job.total), "ever admitted"],
    ["Waiting", (job) => count(job.waiting), "for their domain's turn"],
    ["Leased", (job) => count(job.leased), "being fetched, or about to be"],
    ["Domains parked", (job) => count(job.parked_domains), "set aside, see Domains"],
    ["Trapped", (job) => count(job.trapped), "URLs that look endless"],
  ],
  Fetched: [
    ["Fetched", (job) => count(job.completed), "answered, whatever the status"],
    ["Failed", (job) => count(job.failed), "no answer"],
    ["Not allowed", (job) => count(job.skipped), "robots.txt, rules"],
    ["Received", (job) => bytes(job.bytes), ""],
  ],
  Pages: [
    ["On the queue", (job) => count(job.pages_queued), "fetched, not parsed yet"],
    ["Being parsed", (job) => count(job.pages_being_parsed), "taken by a parser, not on disk yet"],
    ["Stored", (job) => count(job.pages_stored), "on disk, can be read"],
    ["Truncated", (job) => count(job.pages_cut), "too large, or broken off"],
    ["Links on disk", (job) => count(job.links_spilled), "wait for room in Redis"],
  ],
};

export function overviewPanel(place, view, route, signal) {
  const live = new Live();
  const chart = speedChart(view.history);
  const processes = processTables("Processes");
  const failures = failuresSection();
  const recent = recentSection(view, signal);
  const rules = rulesSection();
  place.append(
    progressSection(live),
    chart.element,
    h(
      "div",
      { class: "steps" },
      Object.entries(STEPS).map(([name, figures]) => step(name, figures, live)),
    ),
    failures.element,
    h(
      "section",
      { class: "card", "aria-labelledby": "processes-title" },
      h("h2", { id: "processes-title" }, "Processes"),
      processes.element,
    ),
    recent,
    rules.element,
  );
  function update(job) {
    live.update(job);
    chart.update(job);
    show(chart.element, view.history.samples.some(([, fetched]) => fetched > 0));
    failures.update(job);
    processes.update(job.processes ?? [], isOver(job) ? "None: the crawl is over." : "None yet.");
    rules.update(job);
  }
  return { update };
}

function progressSection(live) {
  const bar = h("progress", { max: "100", "aria-label": "Progress" });
  live.add((job) => {
    const value = job.state === "completed" ? 100 : job.percent;
    if (typeof value === "number") setAttribute(bar, "value", value);
    else bar.removeAttribute("value");
    bar.classList.toggle("still", job.state !== "processing");
  });
  const left = (job) => {
    if (job.state !== "processing") return "";
    return typeof job.seconds_left === "number"
      ? `about ${duration(job.seconds_left)} left`
      : "time left not known yet";
  };
  return h(
    "section",
    { class: "card progress", "aria-label": "Progress" },
    bar,
    h(
      "p",
      {},
      live.text(
        (job) =>
          typeof job.percent === "number" || job.state === "completed"
            ? percent(job.state === "completed" ? 100 : job.percent)
            : "",
        "b",
      ),
      live.text(done),
      live.text((job) => (job.total ? `${count(job.remaining)} remain` : "No URLs yet")),
      live.text(left),
      live.text(
        ({ ran_seconds: ran, limits }) =>
          `ran ${duration(ran)}${limits.max_seconds ? ` of at most ${duration(limits.max_seconds)}` : ""}`,
        "span",
        { class: "faint" },
      ),
    ),
  );
}

// What the bar counts: pages if their limit is reached before the URLs are done.
function done(job) {
  const most = job.limits.max_pages;
  if (most && most - job.completed < job.remaining)
    return `${count(job.completed)} of at most ${count(most)} pages fetched`;
  return job.total
    ? `${count(job.completed + job.failed + job.skipped)} of ${count(job.total)} URLs done`
    : "";
}

function step(name, figures, live) {
  return h(
    "section",
    { class: "card step", "aria-label": name },
    h("h2", {}, name),
    h(
      "dl",
      {},
      figures.map(([label, of, hint]) =>
        h("div", {}, h("dt", {}, label, hint ? h("small", {}, hint) : null), live.text(of, "dd")),
      ),
    ),
  );
}

function failuresSection() {
  const { element: box, body } = table("Failures by reason", [
    ["Reason"],
    ["URLs", "number"],
    ["What it means, and what to do"],
  ]);
  const element = h(
    "section",
    { class: "card", "aria-labelledby": "failures-title", hidden: true },
    h("h2", { id: "failures-title" }, "Failures and refusals"),
    box,
  );
  function update(job) {
    const reasons = Object.entries({ ...job.failed_by_reason, ...job.skipped_by_reason })
      .sort(([, a], [, b]) => b - a)
      .slice(0, MOST_REASONS);
    show(element, reasons.length > 0);
    keep(
      body,
      reasons,
      ([reason]) => reason,
      ([reason]) => {
        const [what, todo] = adviceFor(reason);
        return h(
          "tr",
          {},
          // A long one may break at an underscore.
          h(
            "th",
            { scope: "row", class: "foreign" },
            line(reason, 60)
              .split(/(?=_)/)
              .flatMap((part) => [part, h("wbr")]),
          ),
          h("td", { class: "number" }),
          h(
            "td",
            { class: "words" },
            what ? h("b", {}, `${what[0].toUpperCase()}${what.slice(1)}. `) : null,
            todo,
          ),
        );
      },
      (row, [, number]) => setText(row.cells[1], count(number)),
    );
  }
  return { element, update };
}

function recentSection(view, signal) {
  const list = h("ol", { class: "pages" });
  const empty = h("p", { class: "empty", hidden: true });
  const href = `#/jobs/${encodeURIComponent(view.id)}/pages`;
  let seen = -1;
  repeat(
    RECENT_MS,
    async () => {
      if (view.job.pages_stored === seen) return;
      const stored = view.job.pages_stored;
      const { pages } = await request(jobPath(view.id, `/pages${query({ limit: RECENT })}`), { signal });
      seen = stored;
      keep(
        list,
        pages,
        (page) => page.id,
        (page) => pageRow(view.id, page),
        () => {},
      );
      show(empty, pages.length === 0);
      setText(
        empty,
        isOver(view.job)
          ? "No pages are stored."
          : "None on disk yet: pages appear when a parser has committed its segment.",
      );
    },
    signal,
  );
  return h(
    "section",
    { class: "card", "aria-labelledby": "recent-title" },
    h(
      "div",
      { class: "head" },
      h("h2", { id: "recent-title" }, "Recent pages"),
      h("a", { href }, "Search all pages"),
    ),
    list,
    empty,
  );
}

function rulesSection() {
  const list = h("dl", { class: "rules" });
  const element = h("details", { class: "card" }, h("summary", {}, "Limits and rules of this crawl"), list);
  function update(job) {
    const given = { mode: job.mode, shards: job.shards, parsers: job.parsers, ...job.limits, ...job.rules };
    const rows = Object.entries(given).filter(
      ([, value]) => value !== null && value !== undefined && value !== "",
    );
    keep(
      list,
      rows,
      ([name]) => name,
      ([name]) => h("div", {}, h("dt", {}, line(name, 80)), h("dd", { class: "foreign", dir: "auto" })),
      (row, [, value]) =>
        setText(row.lastElementChild, line(typeof value === "string" ? value : JSON.stringify(value), 300)),
    );
  }
  return { element, update };
}
