// Processes, one table for each machine.

import { foreign, h, keep, setText, table } from "./dom.js";
import { bytes, count, duration, line, NONE, rate } from "./format.js";

// Heartbeats come every few seconds.
const SILENT_S = 15;
const MOST = 200;
const COLUMNS = [
  ["Process"],
  ["Pages/s", "number"],
  ["CPU", "number cpu"],
  ["Memory", "number"],
  ["Files", "number opt"],
  ["Age", "number opt"],
  ["Process id", "number opt2"],
  ["Heard", "number"],
];

export function processTables(label, { withJob = false } = {}) {
  const element = h("div", { class: "stack" });
  const empty = h("p", { class: "empty" });
  element.append(empty);
  const tables = h("div", { class: "stack" });
  element.append(tables);

  function update(processes, whyNone) {
    const hosts = Map.groupBy ? Map.groupBy(processes, (one) => one.host) : grouped(processes);
    setText(empty, processes.length ? "" : whyNone);
    empty.hidden = processes.length > 0;
    tables.classList.toggle("no-cpu", !processes.some((one) => typeof one.cpu === "number"));
    keep(
      tables,
      [...hosts].sort(([a], [b]) => (a < b ? -1 : 1)),
      ([host]) => host,
      ([host]) => {
        const { element: box, body } = table(
          `${label} on ${line(host, 100) || "an unnamed machine"}`,
          COLUMNS,
          { caption: true },
        );
        box.classList.add("even");
        box.body = body;
        return box;
      },
      (box, [, members]) => {
        members.sort(
          (a, b) =>
            (a.job ?? "").localeCompare(b.job ?? "", "en") ||
            order(a) - order(b) ||
            String(a.name).localeCompare(String(b.name), "en", { numeric: true }),
        );
        keep(
          box.body,
          members.slice(0, MOST),
          (one) => `${one.job ?? ""} ${one.kind} ${one.name}`,
          (one) => makeRow(one, withJob),
          updateRow,
        );
      },
    );
  }
  return { element, update };
}

function grouped(processes) {
  const hosts = new Map();
  for (const one of processes) hosts.set(one.host, [...(hosts.get(one.host) ?? []), one]);
  return hosts;
}

const order = ({ kind }) => ["supervisor", "shard", "parser"].indexOf(kind);

function makeRow(one, withJob) {
  const { job } = one;
  const name = h(
    "th",
    { scope: "row" },
    h("span", {}, `${line(one.kind, 30)} `),
    foreign(one.name, 40),
    h("p", { class: "words foreign" }),
  );
  if (withJob && job)
    name.lastElementChild.before(
      h(
        "span",
        { class: "faint" },
        " of ",
        h("a", { href: `#/jobs/${encodeURIComponent(job)}` }, foreign(job, 40)),
      ),
    );
  return h(
    "tr",
    {},
    name,
    COLUMNS.slice(1).map(([, kind]) => h("td", { class: kind })),
  );
}

function updateRow(row, one) {
  const [name, speed, cpu, memory, files, age, pid, heard] = row.cells;
  const isSilent = one.silent_seconds >= SILENT_S;
  setText(speed, one.kind === "supervisor" ? "" : rate(one.pages_per_s));
  setText(cpu, typeof one.cpu === "number" ? `${Math.round(one.cpu * 100)} %` : NONE);
  setText(memory, bytes(one.memory_bytes));
  setText(files, count(one.open_files));
  setText(age, duration(one.age_seconds));
  setText(pid, one.pid ? String(one.pid) : NONE);
  setText(heard, isSilent ? `▲ silent for ${duration(one.silent_seconds)}` : "now");
  setText(name.lastElementChild, one.last_error ? `Last error: ${line(one.last_error, 200)}` : "");
  row.classList.toggle("wrong", isSilent);
}
