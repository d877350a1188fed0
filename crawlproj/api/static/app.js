// Chooses the view by the address after #, and keeps what all views share: focus, title, health.

import { connection, loaded, repeat, request } from "./api.js";
import { announce, h, setAttribute, setText } from "./dom.js";
import { ago, bytes, counted, line } from "./format.js";
import { jobsView } from "./jobs.js";

const HEALTH_MS = 10_000;
const CLOCK_MS = 5000;
const main = document.getElementById("main");
let current = null;

// #/jobs/ID/pages?q=word -> path ["jobs", "ID", "pages"] and parameters.
function parse(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), parameters: new URLSearchParams(search) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// What the first view does not need is loaded when it is wanted.
async function viewOf({ path }) {
  if (path.length === 0) return jobsView;
  if (path[0] === "jobs" && path[1]) return (await import("./job.js")).jobView;
  if (path[0] === "machines") return (await import("./machines.js")).machinesView;
  return unknownView;
}

async function go() {
  const address = location.hash || "#/";
  const route = parse(address);
  if (current?.accepts?.(route)) {
    current.go(route);
    return;
  }
  const view = await loaded(() => viewOf(route));
  // Somebody went on meanwhile.
  if (address !== (location.hash || "#/")) return;
  const isFirst = current === null;
  current?.end.abort();
  const end = new AbortController();
  current = { end, ...view(main, route, end.signal) };
  document.title = `${current.title} · crawlproj`;
  for (const link of document.querySelectorAll("[data-section]")) {
    const isHere = link.dataset.section === (route.path[0] ?? "jobs");
    setAttribute(link, "aria-current", isHere ? "page" : null);
  }
  if (isFirst) return;
  window.scrollTo(0, 0);
  main.querySelector("h1")?.focus({ preventScroll: true });
  announce(current.title);
}

function unknownView(target) {
  target.replaceChildren(
    h(
      "div",
      { class: "card" },
      h("h1", { tabindex: "-1" }, "No such page"),
      h("p", {}, h("a", { href: "#/" }, "All crawls")),
    ),
  );
  return { title: "No such page" };
}

async function tellHealth() {
  const element = document.getElementById("health");
  let health;
  try {
    health = await request("api/health");
  } catch (error) {
    if (error.status !== 503) throw error;
    health = { ...error.body, status: error.body.problems?.[0]?.what ?? error.message };
  }
  const isWell = health.status === "ok";
  const parts = [isWell ? "Server OK" : `▲ ${line(health.status, 120)}`];
  if (typeof health.jobs_running === "number") parts.push(`${counted(health.jobs_running, "crawl")} running`);
  if (health.jobs_waiting) parts.push(`${health.jobs_waiting} waiting`);
  if (typeof health.disk_free_bytes === "number") parts.push(`${bytes(health.disk_free_bytes)} free`);
  setText(element, parts.join(" · "));
  element.classList.toggle("wrong", !isWell);
}

document.getElementById("lost-retry").addEventListener("click", () => connection.tryNow());
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("online", () => connection.tryNow());
document.addEventListener("visibilitychange", () => document.hidden || connection.tryNow());
// "3 min ago" grows old.
setInterval(() => {
  for (const element of document.querySelectorAll("time")) setText(element, ago(element.dateTime));
}, CLOCK_MS);
window.addEventListener("hashchange", go);
go();
repeat(HEALTH_MS, tellHealth, new AbortController().signal);
