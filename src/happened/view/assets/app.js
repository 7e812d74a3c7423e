// The application: the selected events, the part of the picture in view, and the panels' contents.

const FIRST_EVENTS = 200;
const MOST_ZOOM = 400; // pixels between two levels
const NOTHING_CHOSEN = Object.freeze({
  chosen: [],
  path: null,
  relation: null,
  pastOf: null,
  futureOf: null,
  links: [],
  lit: null,
  critical: false,
});
const $ = id => document.getElementById(id);

class App extends Overview {
  constructor(about) {
    super();
    this.about = about;
    this.canvas = $("board");
    this.overview = $("overview");
    this.painters = { space: new Painter(this.canvas), spans: new SpanPainter(this.canvas) };
    this.story = about.story ? new Story(this, about.story) : null;
    this.panels = new Panels(this);
    this.view = "space";
    this.axis = "logical";
    this.quiet = false;
    this.hidden = new Set();
    this.collapsed = new Set();
    this.ports = {};
    this.frames = [];
    this.only = null;
    this.revealed = null;
    this.clear();
  }

  get painter() {
    return this.view === "spans" ? this.painters.spans : this.painters.space;
  }

  // ---- scenes -------------------------------------------------------------------------------------------

  async open(index, state = {}) {
    this.computation = index;
    this.ports = {};
    this.only = null;
    this.found = null;
    this.revealed = null; // the viewport's place when events were last brought into view
    this.hidden = new Set(state.hidden || []);
    this.collapsed = new Set(state.collapsed || []);
    await this.take(await loadScene(this.about, index, state.window));
    this.view = this.allowed(state.view || "space");
    this.axis = state.axis === "time" && this.scene.hasTime ? "time" : "logical";
    this.quiet = Boolean(state.quiet);
    this.query = state.query || "";
    $("search").value = this.query;
    $("computation").value = String(index);
    this.rebuild();
    if (state.port) this.lookAt(...state.port);
    if (state.chosen)
      this.choose(state.chosen.map(name => this.scene.find(name)).filter(i => i >= 0), { reveal: !state.port });
    if (this.story) this.story.show(state.step);
    this.panels.update();
  }

  async take(scene) {
    const names = this.chosenNames || [];
    this.scene = scene;
    this.clear();
    this.astray = [];
    for (let i = 0; i < scene.size; i++) if (FATES[scene.fate[i]]) this.astray.push(i);
    this.faulty = new Set(scene.faults.flatMap(fault => fault.events).concat(this.astray));
    this.matches = null;
    // Tests and scripts can wait for these attributes to see which scene is loaded.
    document.documentElement.dataset.events = scene.size;
    document.documentElement.dataset.window = scene.window || "";
    const again = names.map(name => scene.find(name)).filter(i => i >= 0);
    if (again.length) this.relate(again);
  }

  show(view) {
    if (this.view === view || this.allowed(view) !== view) return;
    this.view = view;
    this.rebuild();
  }

  allowed(view) {
    const { scene } = this;
    return { hasse: scene.hasHasse, spans: scene.hasSpans }[view] === false ? "space" : view;
  }

  // Rebuild the picture after its settings changed; the viewport stays in place if possible.
  rebuild() {
    const { scene } = this;
    this.picture = this.view === "spans" ? new SpanPicture(scene) : new Picture(scene, this);
    for (const view of ["space", "hasse", "spans"]) {
      const button = $(`view-${view}`);
      button.setAttribute("aria-pressed", String(this.view === view));
      button.hidden = this.allowed(view) !== view;
    }
    $("axis").hidden = !scene.hasTime || this.view !== "space";
    $("axis").setAttribute("aria-pressed", String(this.axis === "time"));
    $("quiet").hidden = this.view === "spans";
    $("quiet").setAttribute("aria-pressed", String(this.quiet));
    this.search(this.query || "", false);
    this.resize();
    const key = `${this.view} ${this.axis} ${this.quiet}`;
    if (!this.ports[key]) {
      this.ports[key] = { x: 0, k: 1, y: 0, stretch: 1 };
      this.port = this.ports[key];
      this.firstLook();
    }
    this.port = this.ports[key];
    this.drawOverview();
    this.panels.update();
    this.changed();
  }

  get room() {
    return this.painter.width - this.painter.left;
  }

  firstLook() {
    const { picture } = this;
    this.painter.layout(picture, this.port);
    let reach = picture.reach(FIRST_EVENTS);
    // Levels stand at least 14 pixels apart, so that message lines can be told apart.
    if (picture.axis === "logical" || this.view === "hasse")
      reach = Math.min(reach, picture.start + this.room / (this.story ? STEP : 14));
    if (picture.axis === "time" && this.view === "space") {
      const margin = Math.max(reach - picture.low, picture.unit / 100) * 0.03;
      this.lookAt(picture.low - margin, reach + margin);
    } else this.lookAt(picture.start, Math.max(reach + picture.unit * 0.5, picture.start + picture.unit * 8));
  }

  lookAt(from, to, y) {
    this.painter.layout(this.picture, this.port);
    this.port.k = Math.min(this.room / Math.max(to - from, 1e-9), MOST_ZOOM / this.picture.unit);
    this.port.x = from;
    if (y !== undefined) this.port.y = y;
    this.changed();
  }

  fit() {
    this.lookAt(this.picture.start, this.picture.end, 0);
  }

  resize() {
    this.painter.resize();
    this.painter.readColours();
    this.painter.dark = dark();
    this.changed();
  }

  // ---- what is chosen -------------------------------------------------------------------------------------

  clear() {
    Object.assign(this, NOTHING_CHOSEN, { fault: -1, hover: -1, matchAt: -1 });
  }

  choose(events, { reveal = false } = {}) {
    this.fault = -1;
    if (!events.length) this.pinned = false;
    this.relate(events);
    if (reveal && events.length) this.reveal(events);
    if (this.about.serve && events.length) this.askAbout(events);
    this.panels.show("details");
    this.describe();
    this.changed();
  }

  relate(events) {
    const { scene } = this;
    Object.assign(this, NOTHING_CHOSEN, { chosen: events });
    this.chosenNames = events.map(i => scene.name(i));
    if (!scene.hasPast || !events.length) return;
    const [a, b] = events;
    if (events.length === 1) {
      this.pastOf = scene.past(a);
      this.futureOf = scene.future(a);
      return;
    }
    this.relation = scene.happenedBefore(a, b)
      ? "before"
      : scene.happenedBefore(b, a)
        ? "after"
        : "concurrent";
    if (this.relation === "concurrent") {
      const [past, other] = [scene.past(a), scene.past(b)],
        [future, also] = [scene.future(a), scene.future(b)];
      this.pastOf = past.map((seq, q) => Math.min(seq, other[q]));
      this.futureOf = future.map((seq, q) => Math.max(seq, also[q]));
      this.common = {
        past: this.pastOf.reduce((sum, seq) => sum + seq, 0),
        future: this.about.serve ? null : this.following(this.futureOf),
      };
    } else {
      const [first, last] = this.relation === "before" ? [a, b] : [b, a];
      this.path = scene.path(first, last);
      this.pastOf = scene.past(last);
      this.since = scene.future(first);
      this.futureOf = null;
    }
  }

  classOf(i) {
    const { scene } = this;
    if (this.story && this.story.isLater(i)) return LATER;
    if (this.pastOf) {
      if (i === this.chosen[0] || i === this.chosen[1]) return CHOSEN;
      const p = scene.process[i],
        seq = scene.begin[p] + i - scene.offsets[p] + 1;
      if (seq <= this.pastOf[p] && (!this.path || seq >= this.since[p])) return PAST;
      if (this.futureOf && seq >= this.futureOf[p]) return FUTURE;
      return DIM;
    }
    if (this.lit) return this.lit.has(i) ? CHOSEN : DIM;
    if (this.matched) return this.matched[i] ? NEUTRAL : DIM;
    return NEUTRAL;
  }

  get pathColour() {
    return this.fault >= 0 ? this.painter.colour.fault : this.painter.colour.ink;
  }

  // How many events are before, after and concurrent with event i; null if that is unknown.
  sizes(i) {
    const { scene } = this;
    if (!scene.hasPast) return null;
    const all = scene.totals.reduce((a, b) => a + b, 0),
      past = scene.past_sizes[i];
    let future = this.told && this.told.event === scene.name(i) ? this.told.future : null;
    if (!this.about.serve) {
      future = this.following(scene.future(i)) - 1;
    }
    return { past, future, concurrent: future === null ? null : all - 1 - past - future };
  }

  // How many events there are from `first`, a seq for each process, to the last event of each process.
  following(first) {
    return first.reduce((sum, seq, q) => sum + Math.max(0, this.scene.totals[q] - seq + 1), 0);
  }

  // Toggle whether the next click selects a second event, as Shift-click does.
  pin() {
    this.pinned = !this.pinned;
    this.panels.update();
    $("live").textContent = this.pinned
      ? "The next event is selected beside this one."
      : "One event is selected at a time.";
  }

  // Show only the past or the future of an event, or everything again.
  async slice(direction, i) {
    const name = i === undefined ? null : this.scene.name(i);
    this.only = direction ? { direction, name } : null;
    this.ports = {};
    if (this.about.serve)
      await this.load(() => loadScene(this.about, this.computation, undefined, this.only));
    else this.rebuild();
    if (name) this.choose([this.scene.find(name)], { reveal: true });
  }

  // A test whether an event (p, seq) belongs to the slice that is shown; null if everything is shown.
  get inside() {
    const { scene, only } = this;
    if (!only || this.about.serve) return null;
    const i = scene.find(only.name),
      past = only.direction === "past";
    const bounds = past ? scene.past(i) : scene.future(i);
    return past ? (p, seq) => seq <= bounds[p] : (p, seq) => seq >= bounds[p];
  }

  // Bring events into view without changing the scale, unless they do not fit.
  reveal(events) {
    const { picture, painter, port } = this;
    if (this.view === "spans") {
      const row = picture.rows.findIndex(
        ({ span }) =>
          events.includes(this.scene.span_first[span]) || events.includes(this.scene.span_last[span]),
      );
      if (row >= 0) port.y = Math.max(0, row * painter.laneHeight - painter.height / 2);
      return this.changed();
    }
    const xs = events.map(i => picture.x[i]).filter(x => !Number.isNaN(x));
    if (!xs.length) return undefined;
    const low = Math.min(...xs),
      high = Math.max(...xs),
      width = this.room / port.k;
    if (high - low > width * 0.9 || port.k * picture.unit < 4) {
      const middle = (low + high) / 2,
        half = Math.max((high - low) * 0.6, picture.unit * 12);
      this.lookAt(middle - half, middle + half);
    } else if (low < port.x + width * 0.05 || high > port.x + width * 0.95)
      port.x = (low + high) / 2 - width / 2;
    const ys = events.map(
      i => painter.top + (picture.laneOf[this.scene.process[i]] + 0.5) * painter.laneHeight,
    );
    if (Math.min(...ys) - port.y < AXIS + 20 || Math.max(...ys) - port.y > painter.height - 20) {
      port.y = (Math.min(...ys) + Math.max(...ys)) / 2 - painter.height / 2;
    }
    this.revealed = { x: port.x, k: port.k };
    return this.changed();
  }

  async showFault(n) {
    const fault = this.scene.faults[n];
    if (this.story) this.story.show(fault.levels[1]);
    if (this.scene.window && fault.events.some(i => i < 0)) {
      await this.loadAround(...fault.levels);
    }
    const now = this.scene.faults[n],
      known = now.events.concat(now.path).filter(i => i >= 0);
    this.show("space");
    this.clear();
    this.fault = n;
    this.chosen = now.events.filter(i => i >= 0);
    this.chosenNames = this.chosen.map(i => this.scene.name(i));
    this.path = now.path.length && now.path.every(i => i >= 0) ? now.path : null;
    if (this.path)
      this.links = this.chosen.map(i => [this.scene.source[i], i]).filter(([from]) => from >= 0);
    this.lit = new Set(known);
    this.reveal(known);
    this.panels.show("faults");
    $("live").textContent = now.told;
    this.changed();
  }

  // Show the critical path: the chain of causes behind the last event.
  showCritical() {
    const path = this.scene.criticalPath();
    if (!path.length) {
      $("live").textContent = "No event of the critical path is loaded.";
      return;
    }
    this.show("space");
    this.clear();
    this.path = path;
    this.lit = new Set(path);
    this.critical = true;
    this.reveal([path[path.length - 1]]);
    this.panels.show("details");
    $("live").textContent = `The critical path has ${path.length} events.`;
    this.changed();
  }

  describe() {
    const { scene, chosen } = this;
    if (!chosen.length) {
      $("live").textContent = "Nothing is selected.";
      return;
    }
    if (chosen.length === 2) {
      const [a, b] = chosen.map(i => scene.name(i));
      $("live").textContent =
        this.relation === "concurrent"
          ? `${a} and ${b} are concurrent.`
          : this.relation === "before"
            ? `${a} happened before ${b}.`
            : `${b} happened before ${a}.`;
      return;
    }
    const [i] = chosen,
      sizes = this.sizes(i);
    const reach = !sizes
      ? ""
      : sizes.future === null
        ? ` ${sizes.past} before.`
        : ` ${sizes.past} before, ${sizes.future} after, ${sizes.concurrent} concurrent.`;
    $("live").textContent = `${scene.name(i)}, ${scene.deed(i)}.${reach}`;
  }

  search(query, jump = true) {
    this.query = query;
    this.matches = matching(this.scene, query);
    this.matched = null;
    this.matchAt = -1;
    if (this.matches) {
      this.matched = new Uint8Array(this.scene.size);
      for (const i of this.matches) this.matched[i] = 1;
    }
    if (this.scene.window) this.findEverywhere();
    else this.found = null;
    if (jump) this.panels.show("find");
    this.changed();
  }

  nextMatch(step) {
    if (this.found && this.found.events.length) {
      const many = this.found.events.length;
      this.goTo(this.found.at < 0 && step < 0 ? many - 1 : (this.found.at + step + many) % many);
      return;
    }
    if (!this.matches || !this.matches.length) return;
    const now = this.matches.indexOf(this.matchAt);
    this.matchAt = this.matches[(now + step + this.matches.length) % this.matches.length];
    this.reveal([this.matchAt]);
    $("live").textContent = `${this.scene.name(this.matchAt)}, ${this.scene.deed(this.matchAt)}.`;
  }

  toggle(set, name) {
    if (set.has(name)) set.delete(name);
    else set.add(name);
    this.rebuild();
  }

  timeOf(i) {
    const { scene } = this;
    const shown = duration(scene.time[i]);
    const at = scene.origin + BigInt(Math.round(scene.time[i]));
    const year = 31_557_600n * 1_000_000_000n;
    if (at < 20n * year || at > 230n * year) return `${shown} after the first`;
    return `${new Date(Number(at / 1_000_000n)).toISOString()}, ${shown} after the first`;
  }

  eventsInView() {
    if (this.view === "spans") return this.picture.rows.map(({ span }) => this.scene.span_first[span]);
    const { picture } = this,
      found = [];
    const to = this.port.x + this.room / this.port.k;
    for (const lane of picture.lanes) {
      for (const p of lane.members) {
        const [first, end] = picture.stretch(p, this.port.x, to);
        for (let i = first; i < end && found.length < 20000; i++) {
          if (picture.x[i] >= this.port.x && picture.x[i] <= to) found.push(i);
        }
      }
    }
    return found.sort((a, b) => picture.x[a] - picture.x[b]);
  }

  // ---- drawing --------------------------------------------------------------------------------------------

  changed() {
    if (this.waiting || !this.picture) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const began = performance.now();
    const { painter, picture, port } = this;
    painter.layout(picture, port);
    port.y = Math.max(0, Math.min(port.y, painter.tall - (painter.height - AXIS)));
    const width = this.room / port.k,
      most = picture.end - picture.start;
    port.x =
      width >= most
        ? Math.min(picture.start, Math.max(port.x, picture.end - width))
        : Math.max(picture.start, Math.min(port.x, picture.end - width * 0.97));
    painter.paint(picture, port, this);
    this.markOverview();
    this.remember();
    if (this.scene.window) this.follow();
    this.frames.push(performance.now() - began);
    if (this.frames.length > 600) this.frames.shift();
  }

  zoom(factor, px = this.painter.left + this.room / 2) {
    const { port, painter, picture } = this;
    const x = port.x + (px - painter.left) / port.k;
    const least = this.room / ((picture.end - picture.start) * 1.1);
    port.k = Math.max(Math.min(least, port.k), Math.min(MOST_ZOOM / picture.unit, port.k * factor));
    port.k = Math.max(least, port.k);
    port.x = x - (px - painter.left) / port.k;
    this.changed();
  }

  pan(dx, dy) {
    this.port.x -= dx / this.port.k;
    this.port.y -= dy;
    this.changed();
  }

  // ---- sharing: the state is in the address -----------------------------------------------------------------

  remember() {
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => {
      const text = `#${addressOf(this)}`;
      if (text.length < 8000 && text !== location.hash) history.replaceState(null, "", text);
    }, 250);
  }
}

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
