// The panels beside the picture: details, faults, matches, processes, and the events in view. Texts of a
// trace are inserted only as text nodes, never as HTML.

const MOST_LISTED = 200;
const LABEL_LISTED = 80; // letters

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

const paragraph = (kind, ...children) => element("p", kind ? { class: kind } : {}, ...children);
const button = (text, act) => element("button", { type: "button", class: "quiet", onclick: act }, text);
const entry = (act, ...children) =>
  element("li", {}, element("button", { type: "button", class: "link", onclick: act }, ...children));
const ordered = items => element("ol", { class: "plain" }, ...items);
const grouped = number => number.toLocaleString("en");

function count(number, noun, nouns = `${noun}s`) {
  return `${grouped(number)} ${number === 1 ? noun : nouns}`;
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

  // Focus the checkbox of a lane's process or group, among those that can be hidden or drawn together.
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
      ? `Faults ${grouped(faults)}`
      : "Faults";
    this.body.replaceChildren(...this[this.tab]().filter(child => child));
    // The focused element was replaced: focus its successor, so that keyboard users keep their place.
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

  // Texts of a trace may be right-to-left: <bdi> keeps them from reversing the text around them.
  name(i) {
    const { scene } = this.app;
    return [element("bdi", {}, scene.processes[scene.process[i]]), `#${scene.seq(i)}`];
  }

  // The description of an event in a list: its kind, its message, and its label.
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
    if (more > 0) items.push(element("li", { class: "dim" }, `and ${grouped(more)} more`));
    return element("section", {}, element("h3", {}, title), ordered(items));
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
      this.verdict(),
      paragraph(
        "",
        `${count(events, "event")} of ${count(scene.processes.length, "process", "processes")}` +
          `, ${count(scene.depth, "level")} deep.`,
      ),
      ...app.about.notes.concat(scene.notes).map(note => paragraph("note", note)),
      paragraph(
        "dim",
        matchMedia("(hover: none)").matches
          ? "Tap an event: what caused it lights up, and what it caused; all else is concurrent. " +
              "Then “Select a second”, and tap another, for the path between them."
          : "Click an event: what caused it lights up, and what it caused; all else " +
              "is concurrent. Shift-click a second one for the path between them. Press ? for all keys.",
      ),
      paragraph("", button("Critical path", () => app.showCritical())),
      this.legend(),
    ];
  }

  verdict() {
    const { about } = this.app;
    return paragraph(`verdict ${about.outcome}`, about.sentence);
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
    const loaded = path.length < total ? `, of which ${grouped(path.length)} are loaded` : "";
    const took = timed && !loaded ? ` in ${duration(steps.reduce((a, b) => a + b, 0))}` : "";
    const meant = timed ? "before each event, what it waited for last." : "a longest chain of causes.";
    return [
      element("h2", {}, "Critical path"),
      paragraph(
        "",
        total === 1
          ? "1 event: nothing that is recorded led to the last one."
          : `${count(total, "event")}${took}${loaded}: ${meant}`,
      ),
      button("Back", () => app.choose([])),
      left ? paragraph("note", `The last ${shown.length} of them are listed.`) : null,
      ordered(items),
    ];
  }

  event(i) {
    const { app } = this,
      { scene } = app;
    const rows = [["kind", scene.deed(i)]];
    if (scene.label[i] >= 0) rows.push(["label", scene.text(scene.label[i])]);
    if (scene.hasTime && !Number.isNaN(scene.time[i])) rows.push(["time", app.timeOf(i)]);
    if (FATES[scene.fate[i]]) rows.push(["fate", FATES[scene.fate[i]]]);
    rows.push(["level", grouped(scene.level[i])]);
    const attributes = attributesOf(scene, i);
    for (let k = 0; k < attributes.length; k += 2) rows.push([attributes[k], attributes[k + 1]]);
    const deliveries = scene.kind[i] === 0 ? scene.deliveriesOf(i) : [];
    const lost = this.lostAt(i);
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
      lost ? paragraph("fault", `Never delivered at ${lost}`) : null,
      this.list("Caused", scene.effectsOf(i)),
      ...(app.view === "hasse" ? this.neighbours(i) : []),
      this.timestamp(i),
    ];
  }

  // The neighbours of an event in the Hasse diagram.
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
    if (!sizes) return paragraph("note", "Past and future are not known on this page.");
    const told = (kind, number, what) =>
      number === null ? null : element("span", { class: kind }, `${grouped(number)} ${what}`);
    return paragraph(
      "reach",
      told("past", sizes.past, "before"),
      told("future", sizes.future, "after"),
      told("dim", sizes.concurrent, "concurrent"),
    );
  }

  slices(i) {
    const { app } = this;
    if (!app.scene.hasPast) return null;
    const second = button("Select a second", () => app.pin());
    second.setAttribute("aria-pressed", String(Boolean(app.pinned)));
    return paragraph(
      "",
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
      paragraph("", `Held${long}: it had arrived at `, this.link(arrival, "")),
      this.list("It waited for", waited, d => scene.messageOf(d)) ||
        paragraph("dim", "Nothing in between was sent causally before it."),
    );
  }

  timestamp(i) {
    const { scene } = this.app;
    if (!scene.hasPast) return null;
    const past = scene.past(i);
    const known = [...past.keys()].filter(q => past[q] > 0);
    const items = known.slice(0, 60).map(q => element("span", {}, `${scene.processes[q]}\u00a0${past[q]}`));
    if (known.length > 60) items.push(element("span", {}, `and ${known.length - 60} more`));
    return element("section", {}, element("h3", {}, "Vector timestamp"), paragraph("vector", ...items));
  }

  pair(i, j) {
    const { app } = this,
      { scene } = app,
      relation = app.relation;
    const back = button("Forget the first", () => app.choose([j]));
    const title = element("h2", {}, ...this.name(i), " and ", ...this.name(j));
    if (relation === "concurrent") {
      return [
        title,
        paragraph("verdict", "Concurrent: neither happened before the other."),
        paragraph("", `In the past of both: ${app.common.past}. ${this.commonFuture()}`),
        back,
      ];
    }
    const [first, last] = relation === "before" ? [i, j] : [j, i];
    return [
      title,
      paragraph("verdict holds", ...this.name(first), " happened before ", ...this.name(last), "."),
      app.path ? this.list(`A causal path of ${count(app.path.length, "event")}`, app.path) : this.farPath(),
      back,
    ];
  }

  // The size of the common future is unknown where only a window of the trace is loaded.
  commonFuture() {
    const { common } = this.app;
    return common.future === null ? "Their common future is lit." : `In the future of both: ${common.future}.`;
  }

  // A path through events that are not loaded, as the server sent it.
  farPath() {
    const { app } = this;
    const far = app.far && app.far.names === app.chosenNames.join(" ") ? app.far.path : null;
    if (!far) return paragraph("note", "The path leads through events that are not loaded.");
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
      ordered(
        far.map(step => entry(go(step), element("b", {}, step.event), ` level ${grouped(step.level)}`)),
      ),
    );
  }

  faults() {
    const { app } = this,
      { scene } = app;
    const items = scene.faults.map((fault, n) => {
      const item = entry(
        () => app.showFault(n),
        element("b", {}, fault.title),
        element("span", {}, fault.told),
      );
      item.firstChild.className = `link fault${app.fault === n ? " now" : ""}`;
      item.firstChild.dataset.fault = n;
      return item;
    });
    return [
      this.verdict(),
      items.length ? ordered(items) : null,
      this.list("Deliveries astray", app.astray, i => `${scene.messageOf(i)}: ${FATES[scene.fate[i]]}`),
      this.list(
        "Never delivered",
        [...new Set(scene.lost_send)],
        i => `${scene.messageOf(i)} at ${this.lostAt(i)}`,
      ),
      ...app.about.quarantine.map(reason => paragraph("note", `Left out: ${reason}`)),
    ];
  }

  // The processes at which a message was not delivered although it was sent there.
  lostAt(send) {
    const { scene } = this.app;
    const at = [...scene.lost_send.keys()].filter(k => scene.lost_send[k] === send);
    return at.map(k => scene.processes[scene.lost_dest[k]]).join(", ");
  }

  find() {
    const { app } = this;
    const help = paragraph(
      "dim",
      "Words are looked for in names, labels, messages and attributes. " +
        "process:web  kind:send  message:p0:3  label:put  time>2ms  time<1s  http.status=500",
    );
    if (!app.matches) return [help];
    if (app.scene.window) return [...this.foundEverywhere(), help];
    return [
      element(
        "p",
        { role: "status" },
        `${count(app.matches.length, "matching event")}. Enter or n goes to the next.`,
      ),
      this.list("Matches", app.matches),
      help,
    ];
  }

  // The matches that the server found in the whole trace, of which only a window is loaded.
  foundEverywhere() {
    const { found, scene } = this.app;
    if (!found) return [element("p", { role: "status" }, "Looking through the whole trace …")];
    const items = found.events.slice(0, MOST_LISTED).map(({ event, level }, at) =>
      entry(
        () => this.app.goTo(at),
        element("b", {}, event),
        ` level ${grouped(level)}${scene.find(event) < 0 ? "" : " · loaded"}`,
      ),
    );
    if (items[found.at]) items[found.at].firstChild.classList.add("now");
    const left = found.count - items.length;
    return [
      element(
        "p",
        { role: "status" },
        `${count(found.count, "matching event")} in the whole trace. Enter or n goes to the next.`,
      ),
      items.length ? ordered(items) : null,
      left > 0 ? paragraph("note", `${grouped(left)} more are not listed.`) : null,
    ];
  }

  inview() {
    const { app } = this;
    return [
      this.list("Events in view", app.eventsInView(), undefined) || paragraph("dim", "No events are in view."),
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
    const row = (kind, text, on, set, name, more = null) =>
      element(
        "li",
        {},
        this.toggle(text, on, () => app.toggle(set, name), `${kind} ${name}`),
        more,
      );
    for (const [group, members] of groups) {
      if (members.length > 1) {
        const together = `Draw ${count(members.length, "process", "processes")} “${group}” as one`;
        rows.push(row("group", together, app.collapsed.has(group), app.collapsed, group));
        rows[rows.length - 1].className = "group";
      }
      for (const p of members) {
        if (listed++ >= MOST_LISTED * 2) continue;
        const name = scene.processes[p],
          events = element("span", { class: "dim" }, ` ${grouped(scene.totals[p])}`);
        rows.push(row("process", name, !app.hidden.has(name), app.hidden, name, events));
      }
    }
    const hide = names => () => {
      app.hidden = new Set(names());
      app.rebuild();
    };
    const others = () => {
      const keep = new Set(app.chosen.map(i => scene.processes[scene.process[i]]));
      return keep.size ? scene.processes.filter(name => !keep.has(name)) : [];
    };
    return [
      paragraph(
        "",
        button("Show all", hide(() => [])),
        " ",
        button("Hide all", hide(() => scene.processes)),
        " ",
        button("Only the selected", hide(others)),
      ),
      element("ul", { class: "plain" }, ...rows),
      listed > MOST_LISTED * 2
        ? paragraph("note", `The first ${MOST_LISTED * 2} of ${grouped(listed)} are listed.`)
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
      const { colour } = this.app.painter;
      drawShape(canvas.getContext("2d"), kind, 8, 4.5, 2, colour.event, "transparent");
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
