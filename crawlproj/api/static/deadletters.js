// Pages that no parser could read, and a way to let the parsers try again.

import { jobPath, query, repeat, request } from "./api.js";
import { announce, foreign, h, keep, outside, setText, show, table, time } from "./dom.js";
import { counted, line } from "./format.js";
import { Pager } from "./pager.js";

const EVERY_MS = 5000;
const ON_A_PAGE = 50;

export function deadLettersPanel(place, view, route, signal) {
  const { element: box, body } = table("Dead letters", [["Page"], ["Error"], ["When", "number opt"], [""]]);
  box.querySelector("th:last-child").append(h("span", { class: "unseen" }, "Action"));
  const note = h("p", { class: "faint", role: "status" });
  const refusal = h("p", { class: "problem", role: "alert", hidden: true });
  const all = h("button", { type: "button", onclick: () => replay({}) }, "Replay all");
  const pager = new Pager(() => refresh(), "dead letters");
  place.append(
    h(
      "section",
      { class: "card", "aria-label": "Dead letters" },
      h(
        "p",
        {},
        "Pages that were fetched but that no parser could read. Replay them after an update, or if a parser was killed.",
      ),
      h("div", { class: "actions" }, all, note),
      refusal,
      box,
      pager.element,
    ),
  );

  async function refresh() {
    const answer = await request(
      jobPath(view.id, `/deadletters${query({ limit: ON_A_PAGE, cursor: pager.cursor })}`),
      { signal },
    );
    keep(
      body,
      answer.deadletters,
      (one) => one.page,
      (one) => makeRow(one, replay),
      () => {},
    );
    show(box, answer.deadletters.length > 0);
    show(all, answer.deadletters.length > 0);
    setText(note, answer.deadletters.length ? "" : "None: every page could be read.");
    pager.update(answer.next ?? null);
  }

  async function replay(what) {
    show(refusal, false);
    try {
      const answer = await request(jobPath(view.id, "/deadletters/replay"), { method: "POST", body: what });
      announce(`${counted(answer.replayed, "page")} put back on the queue`);
      await refresh();
    } catch (error) {
      setText(refusal, line(error.message, 400));
      show(refusal, true);
    }
  }

  repeat(EVERY_MS, refresh, signal);
  return {};
}

function makeRow(one, replay) {
  const button = h(
    "button",
    {
      type: "button",
      class: "small",
      "aria-label": `Replay ${line(one.url, 100)}`,
      onclick: () => replay({ ids: [one.page] }),
    },
    "Replay",
  );
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, outside(one.url, 100)),
    h("td", { class: "words" }, foreign(one.error, 200)),
    h("td", { class: "number opt" }, one.at ? time(one.at) : ""),
    h("td", {}, button),
  );
}
