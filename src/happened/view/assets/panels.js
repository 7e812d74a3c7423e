// What stands beside the picture: details, faults, matches, processes, the events in view. Texts of a trace
// are only ever put into the page as text.

const MOST_LISTED = 200;
const LABEL_LISTED = 80; // characters

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

class Panels {
  constructor(app) {
    this.app = app;
    this.body = document.getElementById("panel-body");
    this.tabs = [...document.querySelectorAll("#tabs button:not([hidden])")];
    this.tab = "details";
    for (const tab of this.tabs) tab.addEventListener("click", () => this.show(tab.dataset.tab));
    document.getElementById("tabs").addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const now = this.tabs.findIndex(tab => tab.dataset.tab === this.tab);
      const next = this.tabs[(now + step + this.tabs.length) % this.tabs.length];
      next.focus();
      this.show(next.dataset.tab);
    });
  }

  show(tab) {
    this.tab = tab;
    for (const each of this.tabs) {
      each.setAttribute("aria-selected", String(each.dataset.tab === tab));
      each.tabIndex = each.dataset.tab === tab ? 0 : -1;
    }
    this.update();
  }

  // The process of a lane, or its group, among those that can be hidden and drawn together.
  showLane(lane) {
    if (!lane) return;
    const name = this.app.scene.processes[lane.members[0]];
    this.show("processes");
    const box = this.boxOf(lane.members.length > 1 ? `group ${groupOf(name)}` : `process ${name}`);
    if (box) box.focus();
  }

  boxOf(key) {
    return [...this.body.querySelectorAll("input")].find(box => box.dataset.key === key);
  }

  update() {
    const { app } = this,
      at = document.activeElement.dataset.key;
    const faults = app.scene.faults.length + app.astray.length;
    this.tabs.find(tab => tab.dataset.tab === "faults").textContent = faults
      ? `Faults ${faults.toLocaleString("en")}`
      : "Faults";
    this.body.replaceChildren(...this[this.tab]().filter(child => child));
    // What had the focus has been made anew: who goes by keys must not start over.
    const box = at === undefined ? undefined : this.boxOf(at);
    if (box) box.focus();
  }

  link(i, text) {
    const { app } = this;
    if (i < 0) return element("span", { class: "dim" }, text || "outside");
    return element(
      "button",
      { class: "link", type: "button", onclick: () => app.choose([i], { reveal: true }) },
      element("b", {}, ...this.name(i)),
      ...(text === undefined ? this.told(i) : [` ${text}`]),
    );
  }

  // Texts of a trace may run from right to left: each is isolated, so that it turns nothing else around.
  name(i) {
    const { scene } = this.app;
    return [element("bdi", {}, scene.processes[scene.process[i]]), `#${scene.seq(i)}`];
  }

  // What an event of a list did: its kind and message, and what the trace says of it.
  told(i) {
    const { scene } = this.app;
    const deed = [` ${KINDS[scene.kind[i]]}`];
    if (scene.message[i] >= 0) deed.push(" ", element("bdi", {}, scene.messageOf(i)));
    const label = scene.text(scene.label[i]);
    if (!label) return deed;
    const short = label.length > LABEL_LISTED ? `${label.slice(0, LABEL_LISTED)}…` : label;
    return [...deed, " “", element("bdi", {}, short), "”"];
  }

  list(title, events, tell) {
    if (!events.length) return null;
    const items = events.slice(0, MOST_LISTED).map(i => element("li", {}, this.link(i, tell && tell(i))));
    const more = events.length - items.length;
    if (more > 0) items.push(element("li", { class: "dim" }, `and ${more.toLocaleString("en")} more`));
    return element("section", {}, element("h3", {}, title), element("ol", { class: "plain" }, ...items));
  }

  story() {
    return this.app.story.panel();
  }

  details() {
    const { app } = this,
      { scene } = app;
    if (app.chosen.length === 2) return this.pair(...app.chosen);
    if (app.chosen.length === 1) return this.event(app.chosen[0]);
    if (app.critical) return this.criticalPath();
    const events = scene.totals.reduce((a, b) => a + b, 0);
    return [
      element("p", { class: `verdict ${app.about.outcome}` }, app.about.sentence),
      element(
        "p",
        {},
        `${count(events, "event")} of ${count(scene.processes.length, "process").replace("processs", "processes")}` +
          `, ${count(scene.depth, "level")} deep.`,
      ),
      ...app.about.notes.concat(scene.notes).map(note => element("p", { class: "note" }, note)),
      element(
        "p",
        { class: "dim" },
        matchMedia("(hover: none)").matches
          ? "Tap an event: what caused it lights up, and what it caused; all else is concurrent. " +
              "Then “Select a second”, and tap another, for the path between them."
          : "Click an event: what caused it lights up, and what it caused; all else " +
              "is concurrent. Shift-click a second one for the path between them. Press ? for all keys.",
      ),
      element(
        "p",
        {},
        element(
          "button",
          { type: "button", class: "quiet", onclick: () => app.showCritical() },
          "Critical path",
        ),
      ),
      this.legend(),
    ];
  }

  criticalPath() {
    const { app } = this,
      { scene, path } = app;
    const steps = scene.criticalSteps,
      timed = steps.length > 0,
      total = scene.critical.length;
    const shown = path.slice(-MOST_LISTED),
      left = path.length - shown.length;
    const items = shown.map(i => {
      const took = scene.criticalStep(i);
      return element("li", {}, this.link(i), took === undefined ? "" : ` +${duration(took)}`);
    });
    const loaded = path.length < total ? `, of which ${path.length.toLocaleString("en")} are loaded` : "";
    const took = timed && !loaded ? ` in ${duration(steps.reduce((a, b) => a + b, 0))}` : "";
    const meant = timed ? "before each event, what it waited for last." : "a longest chain of causes.";
    return [
      element("h2", {}, "Critical path"),
      element(
        "p",
        {},
        total === 1
          ? "1 event: nothing that is recorded led to the last one."
          : `${count(total, "event")}${took}${loaded}: ${meant}`,
      ),
      element("button", { type: "button", class: "quiet", onclick: () => app.choose([]) }, "Back"),
      left ? element("p", { class: "note" }, `The last ${shown.length} of them are listed.`) : null,
      element("ol", { class: "plain" }, ...items),
    ];
  }

  event(i) {
    const { app } = this,
      { scene } = app;
    const rows = [["kind", scene.deed(i)]];
    if (scene.label[i] >= 0) rows.push(["label", scene.text(scene.label[i])]);
    if (scene.hasTime && !Number.isNaN(scene.time[i])) rows.push(["time", app.timeOf(i)]);
    if (FATES[scene.fate[i]]) rows.push(["fate", FATES[scene.fate[i]]]);
    rows.push(["level", scene.level[i].toLocaleString("en")]);
    const attributes = scene.attributes[i] >= 0 ? scene.text(scene.attributes[i]) : [];
    for (let k = 0; k < attributes.length; k += 2) rows.push([attributes[k], attributes[k + 1]]);
    const deliveries = scene.kind[i] === 0 ? scene.deliveriesOf(i) : [];
    const lost = [...scene.lost_send.keys()].filter(k => scene.lost_send[k] === i);
    return [
      element("h2", {}, ...this.name(i)),
      this.reach(i),
      this.slices(i),
      this.held(i),
      element(
        "dl",
        {},
        ...rows.flatMap(([key, value]) => [element("dt", {}, key), element("dd", { dir: "auto" }, value)]),
      ),
      this.list("Caused by", scene.informants(i)),
      this.list("Delivered", deliveries),
      lost.length
        ? element(
            "p",
            { class: "fault" },
            `Never delivered at ${lost.map(k => scene.processes[scene.lost_dest[k]]).join(", ")}`,
          )
        : null,
      this.list("Caused", scene.effectsOf(i)),
      ...(app.view === "hasse" ? this.neighbours(i) : []),
      this.timestamp(i),
    ];
  }

  // What is next to an event in the Hasse diagram.
  neighbours(i) {
    const { scene } = this.app;
    const beside = (mine, others) => [...mine.keys()].filter(k => mine[k] === i).map(k => others[k]);
    return [
      this.list("Immediate predecessors", beside(scene.hasse_effects, scene.hasse_causes)),
      this.list("Immediate successors", beside(scene.hasse_causes, scene.hasse_effects)),
    ];
  }

  reach(i) {
    const { app } = this,
      sizes = app.sizes(i);
    if (!sizes) return element("p", { class: "note" }, "Past and future are not known on this page.");
    return element(
      "p",
      { class: "reach" },
      element("span", { class: "past" }, `${sizes.past.toLocaleString("en")} before`),
      sizes.future === null
        ? null
        : element("span", { class: "future" }, `${sizes.future.toLocaleString("en")} after`),
      sizes.future === null
        ? null
        : element("span", { class: "dim" }, `${sizes.concurrent.toLocaleString("en")} concurrent`),
    );
  }

  slices(i) {
    const { app } = this;
    if (!app.scene.hasPast) return null;
    const button = (text, act) => element("button", { type: "button", class: "quiet", onclick: act }, text);
    const second = button("Select a second", () => app.pin());
    second.setAttribute("aria-pressed", String(Boolean(app.pinned)));
    return element(
      "p",
      {},
      button("Only its past", () => app.slice("past", i)),
      " ",
      button("Only its future", () => app.slice("future", i)),
      app.only ? " " : null,
      app.only ? button("Everything", () => app.slice(null, i)) : null,
      " ",
      second,
    );
  }

  held(i) {
    const { scene } = this.app;
    const arrival = scene.arrival[i];
    if (arrival < 0 || i - arrival < 2) return null;
    const waited = scene.waitedFor(i);
    const gap = scene.hasTime ? scene.time[i] - scene.time[arrival] : NaN;
    const long = Number.isNaN(gap) ? "" : ` for ${duration(gap)}`;
    return element(
      "section",
      { class: "held" },
      element("p", {}, `Held${long}: it had arrived at `, this.link(arrival, "")),
      waited.length
        ? this.list("It waited for", waited, d => scene.messageOf(d))
        : element("p", { class: "dim" }, "Nothing in between was sent causally before it."),
    );
  }

  timestamp(i) {
    const { scene } = this.app;
    if (!scene.hasPast) return null;
    const past = scene.past(i);
    const known = [...past.keys()].filter(q => past[q] > 0);
    const items = known.slice(0, 60).map(q => element("span", {}, `${scene.processes[q]}\u00a0${past[q]}`));
    if (known.length > 60) items.push(element("span", {}, `and ${known.length - 60} more`));
    return element(
      "section",
      {},
      element("h3", {}, "Vector timestamp"),
      element("p", { class: "vector" }, ...items),
    );
  }

  pair(i, j) {
    const { app } = this,
      { scene } = app,
      relation = app.relation;
    const back = element(
      "button",
      { type: "button", class: "quiet", onclick: () => app.choose([j]) },
      "Forget the first",
    );
    const title = element("h2", {}, ...this.name(i), " and ", ...this.name(j));
    if (relation === "concurrent") {
      return [
        title,
        element("p", { class: "verdict" }, "Concurrent: neither happened before the other."),
        element("p", {}, `In the past of both: ${app.common.past}. ${this.commonFuture()}`),
        back,
      ];
    }
    const [first, last] = relation === "before" ? [i, j] : [j, i];
    return [
      title,
      element(
        "p",
        { class: "verdict holds" },
        ...this.name(first),
        " happened before ",
        ...this.name(last),
        ".",
      ),
      app.path ? this.list(`A causal path of ${count(app.path.length, "event")}`, app.path) : this.farPath(),
      back,
    ];
  }

  // A window of a trace does not tell what comes after it.
  commonFuture() {
    const { common } = this.app;
    return common.future === null ? "Their common future is lit." : `In the future of both: ${common.future}.`;
  }

  // A path through events that are not loaded, as the server told it.
  farPath() {
    const { app } = this;
    const far = app.far && app.far.names === app.chosenNames.join(" ") ? app.far.path : null;
    if (!far) return element("p", { class: "note" }, "The path leads through events that are not loaded.");
    const go = step => async () => {
      if (app.scene.find(step.event) < 0) await app.loadAround(step.level);
      app.choose(
        [app.scene.find(step.event)].filter(i => i >= 0),
        { reveal: true },
      );
    };
    return element(
      "section",
      {},
      element("h3", {}, `A causal path of ${count(far.length, "event")}`),
      element(
        "ol",
        { class: "plain" },
        ...far.map(step =>
          element(
            "li",
            {},
            element(
              "button",
              { class: "link", type: "button", onclick: go(step) },
              element("b", {}, step.event),
              ` level ${step.level.toLocaleString("en")}`,
            ),
          ),
        ),
      ),
    );
  }

  faults() {
    const { app } = this,
      { scene } = app;
    const items = scene.faults.map((fault, n) =>
      element(
        "li",
        {},
        element(
          "button",
          {
            class: `link fault${app.fault === n ? " now" : ""}`,
            type: "button",
            "data-fault": n,
            onclick: () => app.showFault(n),
          },
          element("b", {}, fault.title),
          element("span", {}, fault.told),
        ),
      ),
    );
    return [
      element("p", { class: `verdict ${app.about.outcome}` }, app.about.sentence),
      items.length ? element("ol", { class: "plain faults" }, ...items) : null,
      this.list("Deliveries astray", app.astray, i => `${scene.messageOf(i)}: ${FATES[scene.fate[i]]}`),
      this.list("Never delivered", [...new Set(scene.lost_send)], i => this.lost(i)),
      ...app.about.quarantine.map(reason => element("p", { class: "note" }, `Left out: ${reason}`)),
    ];
  }

  // A message that was not delivered everywhere, and where not.
  lost(send) {
    const { scene } = this.app;
    const at = [...scene.lost_send.keys()].filter(k => scene.lost_send[k] === send);
    return `${scene.messageOf(send)} at ${at.map(k => scene.processes[scene.lost_dest[k]]).join(", ")}`;
  }

  find() {
    const { app } = this;
    const help = element(
      "p",
      { class: "dim" },
      "Words are looked for in names, labels, messages and attributes. " +
        "process:web  kind:send  message:p0:3  label:put  time>2ms  time<1s  http.status=500",
    );
    if (!app.matches) return [help];
    if (app.scene.window) return [...this.foundEverywhere(), help];
    return [
      element(
        "p",
        { role: "status" },
        `${count(app.matches.length, "event").replace("event", "matching event")}. ` +
          "Enter or n goes to the next.",
      ),
      this.list("Matches", app.matches),
      help,
    ];
  }

  // What the server found in the whole trace, of which a window is loaded.
  foundEverywhere() {
    const { found, scene } = this.app;
    if (!found) return [element("p", { role: "status" }, "Looking through the whole trace …")];
    const items = found.events.slice(0, MOST_LISTED).map(({ event, level }, at) =>
      element(
        "li",
        {},
        element(
          "button",
          { class: `link${found.at === at ? " now" : ""}`, type: "button", onclick: () => this.app.goTo(at) },
          element("b", {}, event),
          ` level ${level.toLocaleString("en")}${scene.find(event) < 0 ? "" : " · loaded"}`,
        ),
      ),
    );
    const left = found.count - items.length;
    return [
      element(
        "p",
        { role: "status" },
        `${count(found.count, "matching event")} in the whole trace. Enter or n goes to the next.`,
      ),
      items.length ? element("ol", { class: "plain" }, ...items) : null,
      left > 0 ? element("p", { class: "note" }, `${left.toLocaleString("en")} more are not listed.`) : null,
    ];
  }

  inview() {
    const { app } = this;
    return [
      this.list("Events in view", app.eventsInView(), undefined) ||
        element("p", { class: "dim" }, "No events are in view."),
    ];
  }

  processes() {
    const { app } = this,
      { scene } = app;
    const groups = new Map();
    inOrder(scene.processes).forEach(([p, name]) => {
      const group = groupOf(name);
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(p);
    });
    const rows = [];
    let listed = 0;
    for (const [group, members] of groups) {
      if (members.length > 1) {
        rows.push(
          element(
            "li",
            { class: "group" },
            this.toggle(
              `Draw ${count(members.length, "process").replace("processs", "processes")} “${group}” as one`,
              app.collapsed.has(group),
              () => app.toggle(app.collapsed, group),
              `group ${group}`,
            ),
          ),
        );
      }
      for (const p of members) {
        if (listed++ >= MOST_LISTED * 2) continue;
        rows.push(
          element(
            "li",
            {},
            this.toggle(
              scene.processes[p],
              !app.hidden.has(scene.processes[p]),
              () => app.toggle(app.hidden, scene.processes[p]),
              `process ${scene.processes[p]}`,
            ),
            element("span", { class: "dim" }, ` ${scene.totals[p].toLocaleString("en")}`),
          ),
        );
      }
    }
    const all = shown => () => {
      app.hidden = new Set(shown ? [] : scene.processes);
      app.rebuild();
    };
    const chosen = () => {
      const keep = new Set(app.chosen.map(i => scene.processes[scene.process[i]]));
      app.hidden = new Set(scene.processes.filter(name => !keep.has(name) && keep.size));
      app.rebuild();
    };
    return [
      element(
        "p",
        {},
        element("button", { type: "button", class: "quiet", onclick: all(true) }, "Show all"),
        " ",
        element("button", { type: "button", class: "quiet", onclick: all(false) }, "Hide all"),
        " ",
        element("button", { type: "button", class: "quiet", onclick: chosen }, "Only the selected"),
      ),
      element("ul", { class: "plain" }, ...rows),
      listed > MOST_LISTED * 2
        ? element(
            "p",
            { class: "note" },
            `The first ${MOST_LISTED * 2} of ${listed.toLocaleString("en")} are listed.`,
          )
        : null,
    ];
  }

  toggle(text, on, change, key) {
    const box = element("input", { type: "checkbox", onchange: change, "data-key": key });
    box.checked = on;
    return element("label", {}, box, ` ${text}`);
  }

  legend() {
    const items = [
      ["send", 0],
      ["arrival", 1],
      ["delivery", 2],
      ["internal event", 3],
    ].map(([text, kind]) => {
      const canvas = element("canvas", { width: 32, height: 32, "aria-hidden": "true" });
      const g = canvas.getContext("2d");
      g.scale(2, 2);
      g.beginPath();
      shape(g, kind, 8, 8, 4.5);
      g.fillStyle = kind === 1 ? "transparent" : this.app.painter.colour.event;
      g.strokeStyle = this.app.painter.colour.event;
      g.lineWidth = 1.5;
      g.fill();
      if (kind === 1) g.stroke();
      return element("li", {}, canvas, text);
    });
    const colours = [
      ["past", "happened before"],
      ["future", "happened after"],
      ["heldbar", "held: arrived, not yet delivered"],
      ["faultring", "at fault"],
    ].map(([name, text]) => element("li", {}, element("i", { class: `swatch ${name}` }), text));
    return element("ul", { class: "legend", "aria-label": "Legend" }, ...items, ...colours);
  }
}
