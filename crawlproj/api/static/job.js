// One crawl, live: how it is, what can be done, and a panel for each thing to look at.

import { follow, jobPath, loaded, repeat, request } from "./api.js";
import { toolbar } from "./actions.js";
import { announce, foreign, h, Live, keep, put, setAttribute, setText, show, time } from "./dom.js";
import { count, line, percent } from "./format.js";
import { overviewPanel } from "./overview.js";
import { History } from "./chart.js";
import { stateChip, wellness } from "./state.js";

const HISTORY_MS = 30_000;

// Path, label, the number beside it.
const PANELS = {
  "": { label: "Overview", make: async () => overviewPanel },
  pages: {
    label: "Pages",
    make: async () => (await import("./pages.js")).pagesPanel,
    number: (job) => job.pages_stored,
  },
  domains: {
    label: "Domains",
    make: async () => (await import("./domains.js")).domainsPanel,
    number: (job) => job.parked_domains,
    what: "parked",
  },
  deadletters: {
    label: "Dead letters",
    make: async () => (await import("./deadletters.js")).deadLettersPanel,
    number: (job) => job.dead_letters,
  },
};

export function jobView(main, route, signal) {
  const [, id] = route.path;
  const live = new Live();
  const history = new History();
  const place = h("div", { class: "panel" });
  const view = { title: line(id, 60), id, job: null, panel: null, history };
  const body = h(
    "div",
    {},
    header(id, live),
    wellBox(live),
    toolbar(id, live, (job) => update(job), signal),
    tabs(id, live),
    place,
  );
  const waiting = h("p", { class: "card" }, "Loading …");
  show(body, false);
  main.replaceChildren(waiting, body);

  function update(told) {
    if (signal.aborted) return;
    history.add(told);
    const speed = history.speed ?? told.pages_per_second;
    // Of a crawl that has fetched nothing yet, all its time.
    const idle = told.completed ? history.idleSeconds : told.ran_seconds;
    const job = { ...told, pages_per_second: speed, idle_seconds: idle };
    if (view.job && view.job.state !== job.state) announce(`Crawl ${job.id}: ${wellness(job).text}`);
    const isFirst = view.job === null;
    view.job = job;
    live.update(job);
    const share =
      job.state === "processing" && typeof job.percent === "number" ? `${percent(job.percent)} · ` : "";
    document.title = `${share}${line(id, 60)} · crawlproj`;
    if (isFirst) {
      waiting.remove();
      show(body, true);
      go(route);
    } else view.panel?.update?.(job);
  }

  async function go(to) {
    route = to;
    if (view.job === null) return;
    const name = PANELS[to.path[2] ?? ""] ? (to.path[2] ?? "") : "";
    for (const link of body.querySelectorAll(".tabs a"))
      setAttribute(link, "aria-current", link.dataset.panel === name ? "page" : null);
    if (view.panel?.name === name && view.panel.go) {
      view.panel.go(to);
      return;
    }
    const make = await loaded(PANELS[name].make);
    // Somebody went on meanwhile.
    if (route !== to || signal.aborted) return;
    view.panel?.end.abort();
    const end = new AbortController();
    signal.addEventListener("abort", () => end.abort());
    place.replaceChildren();
    view.panel = { name, end, ...make(place, view, to, end.signal) };
    view.panel.update?.(view.job);
  }

  follow(id, update, () => gone(main, id), signal);
  repeat(
    HISTORY_MS,
    async () => {
      history.keep(await request(jobPath(id, "/history"), { signal }));
      if (view.job) view.panel?.update?.(view.job);
    },
    signal,
  );
  return { ...view, accepts: (to) => to.path[0] === "jobs" && to.path[1] === id, go };
}

function header(id, live) {
  const chip = stateChip();
  live.add((job) => chip.update(job));
  const when = h("span", { class: "faint" });
  live.add((job) =>
    put(when, "created ", time(job.created_at), job.ended_at ? [", ended ", time(job.ended_at)] : null),
  );
  const where = live.text((job) => (job.pages_path ? `pages in ${line(job.pages_path, 300)}` : ""), "span", {
    class: "faint foreign",
  });
  return h("div", { class: "title" }, h("h1", { tabindex: "-1" }, foreign(id, 100)), chip, when, where);
}

function wellBox(live) {
  const sign = h("span", { class: "sign", "aria-hidden": "true" });
  const text = h("span");
  const list = h("ul");
  const box = h("section", { class: "well-box", "aria-label": "Health" }, h("p", {}, sign, text), list);
  live.add((job) => {
    const { level, text: words, problems } = wellness(job);
    setAttribute(box, "data-level", level);
    setText(sign, { well: "✓", wrong: "▲", idle: "●" }[level]);
    setText(text, words);
    show(list, problems.length > 0);
    keep(
      list,
      problems,
      ({ what, remedy }) => `${what}\n${remedy}`,
      ({ what, remedy }) =>
        h(
          "li",
          {},
          h("b", { class: "foreign" }, line(what, 400)),
          remedy ? h("span", { class: "foreign" }, " ", line(remedy, 400)) : null,
        ),
      () => {},
    );
  });
  return box;
}

function tabs(id, live) {
  const links = Object.entries(PANELS).map(([name, { label, number, what }]) => {
    const badge = h("span", { class: "badge", hidden: true });
    if (number) {
      live.add((job) => {
        const value = number(job);
        show(badge, value > 0);
        setText(badge, what ? `${count(value)} ${what}` : count(value));
      });
    }
    return h(
      "a",
      { href: `#/jobs/${encodeURIComponent(id)}${name ? `/${name}` : ""}`, "data-panel": name },
      label,
      " ",
      badge,
    );
  });
  return h("nav", { class: "tabs", "aria-label": "Parts of this crawl" }, links);
}

function gone(main, id) {
  main.replaceChildren(
    h(
      "div",
      { class: "card" },
      h("h1", { tabindex: "-1" }, "No such crawl"),
      h("p", {}, "There is no crawl named ", foreign(id, 100), ". It may have been deleted."),
      h("p", {}, h("a", { href: "#/" }, "All crawls")),
    ),
  );
  main.querySelector("h1").focus();
}
