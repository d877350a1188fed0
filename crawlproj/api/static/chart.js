// Pages per second since a crawl began, drawn as SVG.

import { h, setAttribute, setText, svg } from "./dom.js";
import { duration, rate } from "./format.js";
import { isOver } from "./state.js";

const MOST = 600;
const HEIGHT = 130;
const LEFT = 42;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 20;
// Speeds are means over this time. After a longer silence the server knows more than this tab.
const WINDOW_MS = 6000;
const GAP_MS = 20_000;
const LEAST_MS = 1500;
const LINES = ["fetched", "parsed"];

// What a job had done: [time, pages fetched, pages taken by parsers]. First what the server kept of its past, then
// what this tab sees, about once a second. Speeds are counted from these: processes report theirs only every few
// seconds.
export class History {
  #past = [];
  #live = [];
  // How far the clock of this browser is ahead.
  #ahead = 0;

  keep({ now, points }) {
    this.#ahead = Date.now() - Date.parse(now);
    this.#past = points.map(({ at, fetched, parsed }) => [Date.parse(at) + this.#ahead, fetched, parsed]);
  }

  add(job) {
    // Nothing more happens to one that is over.
    if (job.ended_at && this.#live.length) return;
    const now = job.ended_at ? Date.parse(job.ended_at) + this.#ahead : Date.now();
    if (now - this.#live.at(-1)?.[0] > GAP_MS) this.#live = [];
    if (now - this.#live.at(-2)?.[0] < LEAST_MS) this.#live.pop();
    this.#live.push([now, job.completed, job.pages_stored + job.pages_being_parsed]);
    if (this.#live.length > MOST) this.#live.shift();
  }

  get #seen() {
    const [[since]] = this.#live;
    return [...this.#past.filter(([at]) => at < since), ...this.#live];
  }

  // [time, fetched/s, parsed/s], each for the time since the one before.
  get samples() {
    return speedsOf(this.#seen);
  }

  // For how long nothing was fetched, as far as was seen.
  get idleSeconds() {
    const [now, fetched] = this.#live.at(-1);
    return (now - this.#live.find(([, before]) => before === fetched)[0]) / 1000;
  }

  // Pages fetched per second now; null if nobody has looked long enough.
  get speed() {
    const last = speedsOf(this.#live).at(-1);
    return last && last[0] === this.#live.at(-1)[0] ? last[1] : null;
  }
}

// The mean speeds between each moment and one some seconds before, or the last one there is.
function speedsOf(seen) {
  const found = [];
  let from = 0;
  seen.forEach(([at, ...counts], i) => {
    while (from + 1 < i && at - seen[from][0] > WINDOW_MS) from += 1;
    const [then, ...before] = seen[from];
    const seconds = (at - then) / 1000;
    if (seconds < 2) return;
    const speeds = counts.map((count, k) => Math.max(0, count - before[k]) / seconds);
    if (!found.length) found.push([then, ...speeds]);
    found.push([at, ...speeds]);
  });
  return found;
}

export function speedChart(history) {
  const grid = svg("g", { class: "grid-lines" });
  const paths = LINES.map((name) => svg("path", { class: `line ${name}` }));
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const since = svg("text", { x: LEFT, y: HEIGHT - 5 });
  const now = svg("text", { y: HEIGHT - 5, "text-anchor": "end" });
  const picture = svg(
    "svg",
    { height: HEIGHT, width: "100%", role: "img" },
    grid,
    ...paths,
    cursor,
    since,
    now,
  );
  const legend = LINES.map((name) => h("span", { class: `key ${name}` }, name));
  const reading = h("span", { class: "faint" });
  const element = h(
    "figure",
    { class: "card chart" },
    h("figcaption", {}, h("h2", {}, "Pages per second"), legend, reading),
    picture,
  );
  let drawn = [];
  let width = 0;
  let end = "now";
  let before = "ago";
  // In pixels, so that its letters are as large as all others on any screen.
  new ResizeObserver(([{ contentRect }]) => {
    width = contentRect.width;
    update();
  }).observe(picture);

  function update(job) {
    if (job) [end, before] = isOver(job) ? ["at the end", "before the end"] : ["now", "ago"];
    drawn = history.samples;
    const last = drawn.at(-1);
    if (!last || !width) return;
    const span = Math.max(60_000, last[0] - drawn[0][0]);
    const most = nice(Math.max(1, ...drawn.flatMap(([, ...values]) => values)));
    const x = (at) => width - RIGHT - ((last[0] - at) / span) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
    grid.replaceChildren(
      ...[0, most / 2, most].flatMap((value) => [
        svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
        svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value.toLocaleString("en")),
      ]),
    );
    paths.forEach((path, i) => path.setAttribute("d", outline(drawn, i + 1, x, y)));
    setAttribute(now, "x", width - RIGHT);
    setText(now, end);
    setText(since, `${duration(span / 1000)} ${before}`);
    picture.positions = drawn.map(([at]) => x(at));
    const peak = Math.max(...drawn.map(([, fetched]) => fetched));
    setAttribute(
      picture,
      "aria-label",
      `Pages per second: ${rate(last[1])} fetched and ${rate(last[2])} parsed ${end}, at most ${rate(peak)} fetched`,
    );
    if (cursor.getAttribute("visibility") === "hidden") tell(last);
  }

  function tell([at, fetched, parsed]) {
    const seconds = Math.round((drawn.at(-1)[0] - at) / 1000);
    setText(
      reading,
      `${seconds ? `${duration(seconds)} ${before}` : end}: ${rate(fetched)} fetched, ${rate(parsed)} parsed`,
    );
  }

  picture.addEventListener("pointermove", (event) => {
    if (!picture.positions?.length) return;
    const box = picture.getBoundingClientRect();
    const at = event.clientX - box.left;
    let nearest = 0;
    picture.positions.forEach((x, i) => {
      if (Math.abs(x - at) < Math.abs(picture.positions[nearest] - at)) nearest = i;
    });
    const x = picture.positions[nearest];
    setAttribute(cursor, "x1", x);
    setAttribute(cursor, "x2", x);
    cursor.setAttribute("visibility", "visible");
    tell(drawn[nearest]);
  });
  picture.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    if (drawn.length) tell(drawn.at(-1));
  });
  return { element, update };
}

// The next of 1, 2, 5, 10, 20, 50 ... so that the scale does not dance.
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

// Steps, as each sample is a mean: the longer its time, the less a slope would be true.
function outline(samples, i, x, y) {
  return samples
    .map((sample, k) => `${k ? "V" : `M${x(sample[0]).toFixed(1)} `}${y(sample[i]).toFixed(1)}H${x(sample[0]).toFixed(1)}`)
    .join("");
}
