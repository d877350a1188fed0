// Pages per second over the last minutes, drawn as SVG.

import { h, setAttribute, setText, svg } from "./dom.js";
import { duration, rate } from "./format.js";

const MOST = 600;
const HEIGHT = 130;
const LEFT = 42;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 20;
const SAVE_MS = 5000;
// Speeds are means over this time, and a longer silence is not bridged: nobody looked.
const WINDOW_MS = 6000;
const GAP_MS = 20_000;
const LEAST_MS = 1500;
const LINES = ["fetched", "parsed"];

// What was seen of a job, kept over a reload of the tab: [time, pages fetched, pages taken by parsers]. Speeds are
// counted from these: processes report theirs only every few seconds.
export class History {
  #saved = 0;

  constructor(id) {
    this.key = `crawlproj-history-${id}`;
    try {
      this.seen = JSON.parse(sessionStorage.getItem(this.key) ?? "[]");
    } catch {
      this.seen = [];
    }
  }

  add(job) {
    const now = Date.now();
    if (this.seen.length > 1 && now - this.seen.at(-2)[0] < LEAST_MS) this.seen.pop();
    this.seen.push([now, job.completed, job.pages_stored + job.pages_being_parsed]);
    if (this.seen.length > MOST) this.seen.splice(0, this.seen.length - MOST);
    if (now - this.#saved < SAVE_MS) return;
    this.#saved = now;
    try {
      sessionStorage.setItem(this.key, JSON.stringify(this.seen));
    } catch {
      // The storage is full: the chart begins anew after a reload.
    }
  }

  // [time, fetched/s, parsed/s] for each moment that has a past of some seconds, without a gap.
  get samples() {
    const found = [];
    let from = 0;
    this.seen.forEach(([at, ...counts], i) => {
      if (i && at - this.seen[i - 1][0] > GAP_MS) from = i;
      while (at - this.seen[from][0] > WINDOW_MS) from += 1;
      const [then, ...before] = this.seen[from];
      const seconds = (at - then) / 1000;
      if (seconds >= 2)
        found.push([at, ...counts.map((count, k) => Math.max(0, count - before[k]) / seconds)]);
    });
    return found;
  }

  // For how long nothing was fetched, as far as was seen.
  get idleSeconds() {
    const [now, fetched] = this.seen.at(-1);
    const since = this.seen.find(([, before]) => before === fetched);
    return (now - since[0]) / 1000;
  }

  // Pages fetched per second now; null if nobody has looked long enough.
  get speed() {
    const last = this.samples.at(-1);
    return last && last[0] === this.seen.at(-1)[0] ? last[1] : null;
  }
}

export function speedChart(history) {
  const grid = svg("g", { class: "grid-lines" });
  const paths = LINES.map((name) => svg("path", { class: `line ${name}` }));
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const since = svg("text", { x: LEFT, y: HEIGHT - 5 });
  const now = svg("text", { y: HEIGHT - 5, "text-anchor": "end" }, "now");
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
  // In pixels, so that its letters are as large as all others on any screen.
  new ResizeObserver(([{ contentRect }]) => {
    width = contentRect.width;
    update();
  }).observe(picture);

  function update() {
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
        svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, rate(value)),
      ]),
    );
    paths.forEach((path, i) => path.setAttribute("d", outline(drawn, i + 1, x, y)));
    setAttribute(now, "x", width - RIGHT);
    setText(since, `${duration(span / 1000)} ago`);
    picture.positions = drawn.map(([at]) => x(at));
    const peak = Math.max(...drawn.map(([, fetched]) => fetched));
    setAttribute(
      picture,
      "aria-label",
      `Pages per second: ${rate(last[1])} fetched and ${rate(last[2])} parsed now, at most ${rate(peak)} fetched`,
    );
    if (cursor.getAttribute("visibility") === "hidden") tell(last);
  }

  function tell([at, fetched, parsed]) {
    const seconds = Math.round((drawn.at(-1)[0] - at) / 1000);
    setText(
      reading,
      `${seconds ? `${duration(seconds)} ago` : "now"}: ${rate(fetched)} fetched, ${rate(parsed)} parsed`,
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

function outline(samples, i, x, y) {
  let before = 0;
  return samples
    .map((sample) => {
      const move = sample[0] - before > GAP_MS ? "M" : "L";
      before = sample[0];
      return `${move}${x(sample[0]).toFixed(1)} ${y(sample[i]).toFixed(1)}`;
    })
    .join("");
}
