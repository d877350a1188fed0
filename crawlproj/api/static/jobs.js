// The first view: a new crawl, and all crawls there are.

import { query, repeat, request } from "./api.js";
import { foreign, h, keep, setAttribute, setText, show, table, time } from "./dom.js";
import { newCrawl } from "./form.js";
import { count, counted, duration, percent, rate } from "./format.js";
import { Pager } from "./pager.js";
import { stateChip, STATES, wellness, wordOf } from "./state.js";

const EVERY_MS = 2000;
const ON_A_PAGE = 25;

export function jobsView(main, route, signal) {
  const { element, body } = table("Crawls", [
    ["Name"],
    ["State"],
    ["Progress"],
    ["Fetched", "number opt"],
    ["Failed", "number opt"],
    ["Remaining", "number opt"],
    ["Pages/s", "number opt2"],
    ["Time left", "number opt"],
    ["Created", "number opt2"],
  ]);
  const empty = h("p", { class: "empty" }, "");
  const filter = h(
    "select",
    { id: "state-filter" },
    h("option", { value: "" }, "all states"),
    STATES.map((state) => h("option", { value: state }, wordOf(state))),
  );
  const pager = new Pager(() => refresh(), "crawls");
  const form = newCrawl((job) => {
    location.hash = `#/jobs/${encodeURIComponent(job.id)}`;
  });
  main.replaceChildren(
    h("h1", { class: "unseen", tabindex: "-1" }, "Crawls"),
    form,
    h(
      "section",
      { class: "card", "aria-labelledby": "jobs-title" },
      h(
        "div",
        { class: "head" },
        h("h2", { id: "jobs-title" }, "Crawls"),
        h("div", { class: "field inline" }, h("label", { for: "state-filter" }, "Show"), filter),
      ),
      element,
      empty,
      pager.element,
    ),
  );
  filter.addEventListener("change", () => {
    pager.reset();
    refresh();
  });

  async function refresh() {
    const state = filter.value;
    const answer = await request(`api/jobs${query({ state, limit: ON_A_PAGE, cursor: pager.cursor })}`, {
      signal,
    });
    keep(body, answer.jobs, (job) => job.id, makeRow, updateRow);
    show(element, answer.jobs.length > 0);
    show(empty, answer.jobs.length === 0);
    setText(
      empty,
      state ? `No crawl is ${wordOf(state)}.` : "No crawls yet. Enter a domain above to start one.",
    );
    pager.update(answer.next, answer.jobs.length);
  }

  repeat(EVERY_MS, refresh, signal);
  // Not if somebody uses the keyboard already.
  const isUntouched = document.activeElement === document.body;
  if (isUntouched && matchMedia("(min-width: 60rem)").matches)
    form.querySelector("textarea").focus({ preventScroll: true });
  return { title: "Crawls" };
}

function makeRow(job) {
  const row = h(
    "tr",
    {},
    h(
      "th",
      { scope: "row" },
      h("a", { href: `#/jobs/${encodeURIComponent(job.id)}` }, foreign(job.id, 60)),
      h("span", { class: "faint well" }),
    ),
    h("td", {}, stateChip()),
    h(
      "td",
      { class: "bar-cell" },
      h("progress", { max: "100", "aria-label": `Progress of ${job.id}` }),
      h("span", { class: "faint" }),
    ),
    ...["number opt", "number opt", "number opt", "number opt2", "number opt"].map((kind) =>
      h("td", { class: kind }),
    ),
    h("td", { class: "number opt2" }, time(job.created_at)),
  );
  return row;
}

function updateRow(row, job) {
  const [name, state, progress, fetched, failed, waiting, speed, left, created] = row.cells;
  const isRunning = job.state === "processing";
  const { wrong } = wellness(job);
  setText(name.querySelector(".well"), wrong ? `▲ ${counted(wrong, "problem")}` : "");
  state.firstElementChild.update(job);
  const bar = progress.firstElementChild;
  const isKnown = typeof job.percent === "number";
  const value = job.state === "completed" ? 100 : isKnown ? job.percent : null;
  if (value === null) bar.removeAttribute("value");
  else setAttribute(bar, "value", value);
  bar.classList.toggle("still", !isRunning);
  setText(progress.lastElementChild, value === null ? "" : percent(value));
  setText(fetched, count(job.completed));
  setText(failed, count(job.failed));
  setText(waiting, count(job.remaining));
  setText(speed, isRunning ? rate(job.pages_per_second) : "");
  setText(left, isRunning && job.seconds_left !== null ? duration(job.seconds_left) : "");
  created.firstElementChild.replaceWith(time(job.created_at));
}
