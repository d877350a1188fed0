// The form of a new crawl. The server checks every field; the page only counts, and shows problems where they are.

import { Problem, request } from "./api.js";
import { announce, foreign, h, put, setText, show } from "./dom.js";
import { count, counted, line } from "./format.js";

const MOST_SHOWN = 20;
const MOST_BYTES = 2_000_000;

// Number fields: name in the API, label, hint, attributes, factor between what is typed and what is sent.
const LIMITS = [
  ["max_pages", "Max pages", "no limit", { min: 1, step: 1 }],
  ["max_seconds", "Max minutes", "no limit", { min: 0.1, step: "any" }, 60],
  ["max_domain_pages", "Pages per domain", "no limit", { min: 1, step: 1 }],
  ["max_depth", "Links away from a seed", "no limit", { min: 1, step: 1 }],
];
const MORE = [
  ["shards", "Shards", "2", { min: 1, max: 64, step: 1 }],
  ["delay", "Seconds between requests to a domain", "server default", { min: 0, step: "any" }],
];

// How many seeds a text seems to have; the server decides. Lines that begin with # are comments, and a comma in the
// path of a URL belongs to it.
function countSeeds(text) {
  const words = text.replace(/^\s*#.*$/gm, "").split(/\s+/);
  const found = words
    .flatMap((word) => word.split(/,(?=[^,]*:\/\/)|(?<!\/[^/,]+),(?!$)/))
    .map((seed) => seed.replace(/,+$/, ""))
    .filter(Boolean);
  return { all: found.length, different: new Set(found).size };
}

export function newCrawl(onCreated) {
  const fields = new Map();
  const seeds = seedsField(fields);
  const general = h("p", { class: "problem", role: "alert", hidden: true });
  const submit = h("button", { class: "main" }, "Start crawl");
  // Repeated after a lost answer, the same request makes the same job.
  let key = "";
  const form = h(
    "form",
    { class: "card new", "aria-labelledby": "new-title", novalidate: true, oninput: () => (key = "") },
    h("h2", { id: "new-title" }, "New crawl"),
    h(
      "div",
      { class: "two" },
      h("div", { class: "field grow" }, seeds.elements),
      h("div", { class: "stack" }, scopeField(fields), limitsField(fields)),
    ),
    moreFields(fields),
    general,
    h("div", { class: "actions" }, submit, seeds.summary),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (submit.getAttribute("aria-disabled")) return;
    clear(fields, general);
    const body = collect(form, seeds.input.value);
    key ||= [...crypto.getRandomValues(new Uint8Array(16))]
      .map((b) => b.toString(16).padStart(2, "0"))
      .join("");
    submit.setAttribute("aria-disabled", "true");
    setText(submit, "Starting …");
    try {
      const job = await request("api/jobs", { method: "POST", body, more: { "Idempotency-Key": key } });
      announce(`Crawl ${job.id} created`);
      onCreated(job);
    } catch (error) {
      report(error, fields, general);
    } finally {
      submit.removeAttribute("aria-disabled");
      setText(submit, "Start crawl");
    }
  });
  return form;
}

function seedsField(fields) {
  const input = h("textarea", {
    id: "f-seeds",
    name: "seeds",
    rows: "7",
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    placeholder: "example.org\nhttps://example.com/blog",
    "aria-describedby": "f-seeds-hint f-seeds-problem",
  });
  const problem = problemOf("seeds", input, fields);
  const summary = h("p", { class: "faint", "aria-live": "polite" });
  const file = h("input", {
    type: "file",
    id: "f-file",
    class: "unseen",
    accept: ".txt,.csv,.tsv,.list,text/*",
    tabindex: "-1",
    "aria-hidden": "true",
  });
  const choose = h(
    "button",
    { type: "button", class: "quiet", onclick: () => file.click() },
    "choose a file",
  );
  const tell = () => {
    const { all, different } = countSeeds(input.value);
    setText(
      summary,
      all
        ? counted(different, "seed") + (all > different ? `, ${counted(all - different, "duplicate")}` : "")
        : "",
    );
  };
  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(tell, 200);
  });
  const add = async (files) => {
    for (const one of files) {
      if (one.size > MOST_BYTES) {
        mark(problem, input, [
          `${line(one.name, 80)} has ${count(one.size)} bytes; ${count(MOST_BYTES)} are accepted. Use scrapy run with a file for more.`,
        ]);
        continue;
      }
      const text = await one.text();
      input.value = input.value.trim() ? `${input.value.trimEnd()}\n${text}` : text;
    }
    tell();
    announce(summary.textContent);
    input.focus();
  };
  file.addEventListener("change", () => {
    add(file.files).finally(() => (file.value = ""));
  });
  for (const name of ["dragover", "dragleave", "drop"]) {
    input.addEventListener(name, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      input.classList.toggle("drop", name === "dragover");
      if (name === "drop") add(event.dataTransfer.files);
    });
  }
  const hint = h(
    "p",
    { class: "faint", id: "f-seeds-hint" },
    "Separated by spaces, commas or lines. Paste them, drop a file here, or ",
    choose,
    file,
    ".",
  );
  return {
    input,
    summary,
    elements: [h("label", { for: "f-seeds" }, "Domains or URLs"), input, problem, hint],
  };
}

function scopeField(fields) {
  const choice = (value, label, hint) =>
    h(
      "label",
      { class: "choice" },
      h("input", {
        type: "radio",
        name: "scope",
        value,
        checked: value === "sites",
        "aria-describedby": "f-scope-problem",
      }),
      h("span", {}, label, h("small", { class: "faint" }, hint)),
    );
  const group = h(
    "fieldset",
    { role: "radiogroup" },
    h("legend", {}, "Follow links"),
    choice("sites", "Within these sites", "the hosts above and all below them"),
    choice("everything", "Everywhere", "to any site; set a limit"),
  );
  group.append(problemOf("scope", group, fields));
  return group;
}

function limitsField(fields) {
  return h(
    "fieldset",
    {},
    h("legend", {}, "Limits"),
    h(
      "div",
      { class: "grid" },
      LIMITS.map((field) => numberField(field, fields)),
    ),
  );
}

function moreFields(fields) {
  const name = textField("name", "Name", "from the first domain", fields);
  const parsers = textField("parsers", "Parsers", "1.. (as needed)", fields);
  const profile = textField("profile", "Profile", "none", fields);
  const mode = h(
    "select",
    { id: "f-mode", name: "mode", "aria-describedby": "f-mode-problem" },
    h("option", { value: "" }, "Several processes"),
    h("option", { value: "single" }, "One process"),
  );
  return h(
    "details",
    { class: "more" },
    h("summary", {}, "Name, processes, delay"),
    h(
      "div",
      { class: "grid wide" },
      name,
      MORE.map((field) => numberField(field, fields)),
      parsers,
      fieldOf("mode", "Mode", mode, fields),
      profile,
    ),
  );
}

function numberField([name, label, hint, attributes, factor = 1], fields) {
  const input = h("input", {
    id: `f-${name}`,
    name,
    type: "number",
    inputmode: "decimal",
    placeholder: hint,
    "data-factor": factor,
    "aria-describedby": `f-${name}-problem`,
    ...attributes,
  });
  return fieldOf(name, label, input, fields);
}

function textField(name, label, hint, fields) {
  const input = h("input", {
    id: `f-${name}`,
    name,
    placeholder: hint,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    "aria-describedby": `f-${name}-problem`,
  });
  return fieldOf(name, label, input, fields);
}

function fieldOf(name, label, input, fields) {
  const problem = problemOf(name, input, fields);
  return h("div", { class: "field" }, h("label", { for: `f-${name}` }, label), input, problem);
}

function problemOf(name, input, fields) {
  const problem = h("ul", { class: "problem", id: `f-${name}-problem`, hidden: true });
  fields.set(name, { input, problem });
  return problem;
}

function collect(form, seeds) {
  const body = { seeds };
  for (const input of form.querySelectorAll("input[name], select[name]")) {
    if (input.type === "radio" && !input.checked) continue;
    const value = input.value.trim();
    if (input.type === "number") {
      // What a browser cannot read as a number is empty, and says so in its validity.
      if (input.validity.badInput) body[input.name] = "not a number";
      else if (value)
        body[input.name] =
          input.dataset.factor === "1"
            ? Number(value)
            : Math.round(Number(value) * Number(input.dataset.factor));
    } else if (value)
      body[input.name] = /^\d+$/.test(value) && input.name === "parsers" ? Number(value) : value;
  }
  return body;
}

function clear(fields, general) {
  show(general, false);
  for (const { input, problem } of fields.values()) {
    show(problem, false);
    put(problem);
    input.removeAttribute("aria-invalid");
  }
}

function mark(problem, input, messages) {
  put(
    problem,
    messages.map((message) => h("li", {}, message)),
  );
  show(problem, true);
  input.setAttribute("aria-invalid", "true");
}

function report(error, fields, general) {
  const byField = new Map();
  const elsewhere = [];
  for (const one of error instanceof Problem ? error.fields : []) {
    // "seeds[3]" and "seeds.3" belong to seeds.
    const name = String(one.field ?? "").split(/[.[]/)[0];
    if (fields.has(name)) byField.set(name, [...(byField.get(name) ?? []), one]);
    else elsewhere.push(one);
  }
  let first = null;
  for (const [name, { input, problem }] of fields) {
    const problems = byField.get(name);
    if (!problems) continue;
    const shown = problems.slice(0, MOST_SHOWN).map(sentence);
    if (problems.length > MOST_SHOWN) shown.push(`and ${count(problems.length - MOST_SHOWN)} more`);
    mark(problem, input, shown);
    first ??= input;
    input.closest("details")?.setAttribute("open", "");
  }
  if (!byField.size || elsewhere.length) {
    general.replaceChildren(
      line(error.message, 600),
      ...elsewhere.map((one) => h("span", {}, " ", sentence(one))),
    );
    show(general, true);
  }
  announce(
    byField.size ? `The crawl was not started: ${counted(error.fields.length, "problem")}` : error.message,
  );
  (first?.matches("fieldset") ? first.querySelector("input") : first)?.focus();
}

// What is wrong, with the value, and what would be right.
export function sentence({ value, problem, remedy }) {
  const parts = [];
  // Most problems name the value themselves.
  if (value !== undefined && value !== null && value !== "" && !String(problem).includes(value))
    parts.push(foreign(typeof value === "string" ? value : JSON.stringify(value), 80, "b"), ": ");
  parts.push(line(problem, 300));
  if (remedy) parts.push(" ", line(remedy, 300));
  return h("span", {}, parts);
}
