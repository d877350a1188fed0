// Processes of all crawls, by machine.

import { repeat, request } from "./api.js";
import { h } from "./dom.js";
import { processTables } from "./processes.js";

const EVERY_MS = 2000;

export function machinesView(main, route, signal) {
  const tables = processTables("Processes", { withJob: true });
  main.replaceChildren(
    h("h1", { tabindex: "-1" }, "Machines"),
    h("section", { class: "card", "aria-label": "Processes by machine" }, tables.element),
  );
  repeat(
    EVERY_MS,
    async () => {
      const { workers } = await request("api/workers", { signal });
      tables.update(workers, "No crawl has processes now.");
    },
    signal,
  );
  return { title: "Machines" };
}
