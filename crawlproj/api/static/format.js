// Numbers, times and foreign text as people read them. Pure.

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const ONE_DIGIT = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export const NONE = "–";

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (isNumber(value) ? GROUPED.format(value) : NONE);

export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function rate(value) {
  if (!isNumber(value)) return NONE;
  return value > 0 && value < 100 ? ONE_DIGIT.format(value) : GROUPED.format(value);
}

export function percent(value) {
  if (!isNumber(value)) return NONE;
  // 99.96 is not yet 100.
  const shown = value < 100 ? Math.min(value, 99.9) : 100;
  return `${shown > 0 && shown < 100 && shown !== Math.round(shown) ? shown.toFixed(1) : shown} %`;
}

export function bytes(value) {
  if (!isNumber(value)) return NONE;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 100 ? ONE_DIGIT.format(value) : GROUPED.format(value)} ${UNITS[unit]}`;
}

// Two units are enough: 3 h 12 min, 4 min 10 s, 42 s.
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return joined(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86400) return joined(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return joined(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
}

function joined(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

export const delay = (ms) =>
  isNumber(ms) ? (ms < 10000 ? `${+(ms / 1000).toFixed(1)} s` : duration(ms / 1000)) : NONE;

export function ago(iso, now = Date.now()) {
  const at = Date.parse(iso);
  if (Number.isNaN(at)) return NONE;
  const seconds = (now - at) / 1000;
  if (seconds < 5) return "just now";
  return `${duration(seconds < 60 ? seconds : Math.floor(seconds / 60) * 60).replace(/ 0 s$/, "")} ago`;
}

export function moment(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return NONE;
  return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

// Characters that change what a reader believes to see: controls, terminal escapes, and those that turn text around.
// They are shown by their number instead. Tab and line feed are kept where text has lines.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]/g;
const BREAKS = /[\t\n]+/g;

export function visible(text) {
  const number = (c) => c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return text.replace(/\r\n?/g, "\n").replace(HIDDEN, (c) => `⟨U+${number(c)}⟩`);
}

// One line of at most *most* characters. Cut first: a title may be megabytes.
export function line(text, most = 200) {
  const source = String(text ?? "");
  const cut = source.length > most ? `${source.slice(0, most).replace(/[\ud800-\udbff]$/, "")}…` : source;
  return visible(cut).replace(BREAKS, " ");
}
