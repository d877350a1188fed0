// What a crawl's state means, and whether it is well: in words and a sign, never by colour alone.

import { h, setAttribute, setText } from "./dom.js";
import { counted, duration, line, rate } from "./format.js";

// Longer than most delays between two pages of a site.
const IDLE_S = 15;

const SIGNS = {
  pending: ["○", "waiting"],
  processing: ["▶", "running"],
  paused: ["❚❚", "paused"],
  completed: ["✓", "completed"],
  failed: ["✕", "failed"],
  stopped: ["■", "stopped"],
};

export const STATES = Object.keys(SIGNS);
export const wordOf = (state) => SIGNS[state][1];

const REASONS = {
  asked: "somebody stopped it",
  interrupted: "its supervisor was interrupted",
  max_pages: "it reached its limit of pages",
  max_seconds: "it reached its limit of time",
  max_bytes: "it reached its limit of bytes",
  parked: "parked domains are left, see Domains",
};

export const isOver = (job) => ["completed", "failed", "stopped"].includes(job.state);

export const reasonOf = (job) => REASONS[job.reason] ?? line(job.reason, 400);

export function stateChip() {
  const sign = h("span", { "aria-hidden": "true" });
  const word = h("span");
  const chip = h("span", { class: "chip" }, sign, word);
  chip.update = (job) => {
    const [mark, text] = SIGNS[job.state] ?? ["?", job.state];
    setText(sign, mark);
    setText(word, text);
    setAttribute(chip, "data-state", job.state);
  };
  return chip;
}

// One look: level ("well", "wrong", "idle"), a sentence, and the problems with their remedies.
export function wellness(job) {
  const problems = job.problems ?? [];
  const why = reasonOf(job);
  const wrong = problems.filter((one) => one.level !== "note").length;
  if (job.state === "failed") {
    // Said once: the list of problems has it with what to do.
    const isListed = problems.some((one) => one.what === job.reason);
    return { level: "wrong", text: why && !isListed ? `Failed: ${why}` : "Failed", problems, wrong };
  }
  if (wrong) return { level: "wrong", text: counted(wrong, "problem"), problems, wrong };
  const { level, text } = quiet(job, why);
  return problems.length
    ? {
        level: "idle",
        text: `${text.replace(/\.$/, "")}; ${counted(problems.length, "note")}:`,
        problems,
      }
    : { level, text, problems };
}

function quiet(job, why) {
  if (job.state === "pending")
    return { level: "idle", text: `Not started yet: ${why || "it waits for its turn"}.` };
  if (job.state === "paused")
    return { level: "idle", text: "Paused: nothing is fetched; what was fetched is stored." };
  if (job.state === "stopped") return { level: "idle", text: why ? `Stopped: ${why}.` : "Stopped." };
  if (job.state === "completed")
    return { level: "well", text: why ? `Completed: ${why}.` : "Completed: nothing is left to fetch." };
  if (job.idle_seconds > IDLE_S && job.remaining)
    return {
      level: "idle",
      text: `Running, but nothing was fetched for ${duration(job.idle_seconds)}: ${counted(job.remaining, "URL")} left. Domains shows delays and failures.`,
    };
  const left = typeof job.seconds_left === "number" ? `, about ${duration(job.seconds_left)} left` : "";
  return { level: "well", text: `Healthy: ${rate(job.pages_per_second)} pages/s${left}` };
}
