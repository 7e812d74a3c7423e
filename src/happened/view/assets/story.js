// Story mode: the picture shows the steps up to the current one, the panel each process's knowledge then.

const STEP = 48; // initial pixels between two steps

class Story {
  constructor(app, { steps, processes }) {
    Object.assign(this, { app, steps, processes, step: 0 });
    $("steps").hidden = $("tab-story").hidden = false;
    document.body.classList.add("story");
    $("slider").max = steps.length;
    $("back").addEventListener("click", () => this.show(this.step - 1));
    $("next").addEventListener("click", () => this.show(this.step + 1));
    $("slider").addEventListener("input", event => this.show(Number(event.target.value)));
  }

  // The event of the scene for a step.
  event(step) {
    return this.app.scene.level.indexOf(step);
  }

  isLater(i) {
    return this.app.scene.level[i] > this.step;
  }

  show(number) {
    const { app } = this;
    this.step = Math.max(0, Math.min(this.steps.length, number));
    const told = this.steps[this.step - 1];
    app.clear();
    if (told) {
      const now = this.event(this.step);
      app.links = told.follows.map(step => [this.event(step), now]);
      app.reveal([now]);
    }
    $("where").textContent = `${this.step} of ${this.steps.length}`;
    $("slider").value = this.step;
    $("live").textContent = this.lines()
      .map(([, , text]) => text)
      .join(". ");
    app.panels.show("story");
    app.changed();
  }

  lines() {
    const told = this.steps[this.step - 1];
    return told ? told.shown : [["", "", "nothing has happened yet"]];
  }

  // The bars of held messages, as [arrival, end]: each ends at the release, or at the current step.
  get holds() {
    const { scene } = this.app,
      now = this.step + 0.5;
    return scene.holds
      .filter(([from]) => !this.isLater(from))
      .map(([from, to]) => [from, Math.min(now, to < 0 ? scene.depth : scene.level[to])]);
  }

  panel() {
    const acting = (this.steps[this.step - 1] || {}).process;
    const lines = this.lines().map(([kind, rule, text]) =>
      element("div", { class: kind }, rule ? element("b", {}, rule) : null, `${rule ? " " : ""}${text}`),
    );
    const rows = this.processes.map(([p, name]) =>
      element(
        "tr",
        { id: `row${p}`, class: p === acting ? "acting" : "" },
        element("th", {}, name),
        element("td", { id: `known${p}` }, ...this.known(p)),
      ),
    );
    return [
      element("div", { id: "scene" }, ...lines),
      element("table", { "aria-label": "what each process remembers" }, element("tbody", {}, ...rows)),
      element("p", { class: "dim" }, this.app.about.sentence),
    ];
  }

  // A process's knowledge and held messages after its last step so far.
  known(process) {
    const last = this.steps.slice(0, this.step).findLast(step => step.process === process);
    if (!last) return [];
    const known = last.known.map(([title, text]) =>
      element(
        "div",
        { class: text === "nothing" ? "dim" : "" },
        element("span", { class: "dim" }, `${title} `),
        element("span", {}, text),
      ),
    );
    return known.concat(last.held.map(text => element("div", { class: "holds" }, `holds ${text}`)));
  }
}
