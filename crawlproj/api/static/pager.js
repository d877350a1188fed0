// Pages of a list by cursor: only one page is ever in the document, however long the list.

import { h, setText, show } from "./dom.js";
import { count } from "./format.js";

export class Pager {
  #before = [];
  #next = null;

  constructor(onTurn, things) {
    this.cursor = "";
    this.number = 1;
    this.onTurn = onTurn;
    this.older = h("button", { type: "button", onclick: () => this.#turn(1) }, "Next");
    this.newer = h("button", { type: "button", onclick: () => this.#turn(-1) }, "Previous");
    this.place = h("span", { class: "faint" });
    this.element = h(
      "nav",
      { class: "pager", "aria-label": `Pages of ${things}`, hidden: true },
      this.newer,
      this.place,
      this.older,
    );
  }

  reset() {
    this.#before = [];
    this.cursor = "";
    this.number = 1;
  }

  // *next* is the cursor of the following page, if there is one.
  update(next) {
    this.#next = next ?? null;
    this.older.disabled = this.#next === null;
    this.newer.disabled = this.#before.length === 0;
    setText(this.place, `page ${count(this.number)}`);
    show(this.element, this.#next !== null || this.#before.length > 0);
  }

  #turn(step) {
    if (step > 0 && this.#next !== null) {
      this.#before.push(this.cursor);
      this.cursor = this.#next;
    } else if (step < 0 && this.#before.length) {
      this.cursor = this.#before.pop();
    } else return;
    this.number += step;
    this.#next = null;
    this.onTurn();
  }
}
