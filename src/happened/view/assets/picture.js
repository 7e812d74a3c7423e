// The layout of a picture: lanes, and the coordinate of every event on the chosen axis.

const GAP = 3; // a quiet stretch is shortened to this multiple of the usual distance

// Processes with their numbers, sorted by name, p2 before p10.
function inOrder(processes) {
  const order = new Intl.Collator("en", { numeric: true }).compare;
  return [...processes.entries()].sort((a, b) => order(a[1], b[1]));
}

class Picture {
  constructor(scene, options) {
    this.scene = scene;
    this.view = options.view;
    this.axis = options.axis;
    this.hidden = options.hidden;
    this.collapsed = options.collapsed;
    this.inside = options.inside;
    this.layLanes();
    this.x = this.coordinates();
    this.breaks = options.quiet ? this.shorten() : null;
    this.edges =
      this.view === "hasse" ? { from: scene.hasse_causes, to: scene.hasse_effects } : this.messageEdges();
    this.measure();
  }

  layLanes() {
    const { scene } = this;
    this.lanes = [];
    this.laneOf = new Int32Array(scene.processes.length).fill(-1);
    const groups = new Map();
    inOrder(scene.processes).forEach(([p, name]) => {
      if (this.hidden.has(name)) return;
      const group = groupOf(name);
      const together = this.collapsed.has(group);
      if (together && groups.has(group)) {
        this.laneOf[p] = groups.get(group);
        this.lanes[groups.get(group)].members.push(p);
        return;
      }
      if (together) groups.set(group, this.lanes.length);
      this.laneOf[p] = this.lanes.length;
      this.lanes.push({ name: together ? `${group} …` : name, members: [p] });
    });
    for (const lane of this.lanes) if (lane.members.length > 1) lane.name += ` (${lane.members.length})`;
  }

  coordinates() {
    const { scene } = this;
    const x = new Float64Array(scene.size);
    const time = this.axis === "time" && scene.hasTime;
    for (let i = 0; i < scene.size; i++) {
      if (this.laneOf[scene.process[i]] < 0 || (this.inside && !this.inside(scene.process[i], scene.seq(i))))
        x[i] = NaN;
      else if (this.view === "hasse") x[i] = scene.hasse_level[i] || NaN;
      else x[i] = time ? scene.time[i] : scene.level[i];
    }
    return x;
  }

  // Shorten stretches without events; store [place, omitted length] of each.
  shorten() {
    const sorted = this.x.filter(value => !Number.isNaN(value)).sort();
    let distinct = 0;
    for (let i = 0; i < sorted.length; i++) {
      if (!distinct || sorted[i] !== sorted[distinct - 1]) sorted[distinct++] = sorted[i];
    }
    const gaps = new Float64Array(Math.max(0, distinct - 1));
    for (let i = 0; i < gaps.length; i++) gaps[i] = sorted[i + 1] - sorted[i];
    const usual = gaps.length ? Float64Array.from(gaps).sort()[gaps.length >> 1] : 1;
    const breaks = [],
      places = new Float64Array(distinct);
    for (let i = 0; i < distinct; i++) {
      const gap = i ? gaps[i - 1] : 0,
        kept = Math.min(gap, GAP * usual);
      places[i] = i ? places[i - 1] + kept : sorted[0];
      if (kept < gap) breaks.push([places[i] - kept / 2, gap - kept]);
    }
    for (let i = 0; i < this.x.length; i++) {
      if (!Number.isNaN(this.x[i])) this.x[i] = places[firstAtLeast(sorted, this.x[i], 0, distinct)];
    }
    return breaks;
  }

  messageEdges() {
    const { scene, laneOf, lanes } = this;
    const from = [],
      to = [];
    // Messages within a group that is drawn as one lane are not shown.
    const within = (a, b) => laneOf[a] >= 0 && laneOf[a] === laneOf[b] && lanes[laneOf[a]].members.length > 1;
    const add = (i, j) => {
      if (within(scene.process[i], scene.process[j])) return;
      from.push(i);
      to.push(j);
    };
    for (let i = 0; i < scene.size; i++) if (scene.source[i] >= 0) add(scene.source[i], i);
    for (let k = 0; k < scene.causes.length; k++) {
      if (scene.process[scene.causes[k]] !== scene.process[scene.effects[k]])
        add(scene.causes[k], scene.effects[k]);
    }
    return { from: Int32Array.from(from), to: Int32Array.from(to) };
  }

  // The range of coordinates, and whether each process's coordinates increase, so that they can be searched.
  measure() {
    const { scene } = this;
    this.low = Infinity;
    this.high = -Infinity;
    this.count = 0;
    this.sorted = scene.processes.map(() => true);
    for (let p = 0; p < scene.processes.length; p++) {
      let last = -Infinity;
      for (let i = scene.offsets[p]; i < scene.offsets[p + 1]; i++) {
        const value = this.x[i];
        if (!(value >= last)) this.sorted[p] = false;
        if (Number.isNaN(value)) continue;
        last = value;
        this.count++;
        if (value < this.low) this.low = value;
        if (value > this.high) this.high = value;
      }
    }
    if (!this.count) this.low = this.high = 0;
    const whole = scene.window;
    if (whole && this.axis === "logical" && this.view === "space" && !this.breaks) {
      this.low = 1;
      this.high = scene.depth;
    }
    // Room for half an event at either end.
    this.unit = this.axis === "time" && this.view !== "hasse" ? (this.high - this.low) / 100 || 1 : 1;
    this.start = this.low - this.unit;
    this.end = this.high + this.unit;
  }

  // The events of process p between two coordinates, as the first and end of a range that contains them all.
  stretch(p, from, to) {
    const { scene } = this;
    const first = scene.offsets[p],
      end = scene.offsets[p + 1];
    if (!this.sorted[p]) return [first, end]; // NaN for hidden events, or a clock that went back
    return [firstAtLeast(this.x, from, first, end), firstAtLeast(this.x, to, first, end)];
  }

  // The coordinate up to which a view contains about `wanted` events.
  reach(wanted) {
    const values = this.x.filter(value => !Number.isNaN(value));
    if (values.length <= wanted) return this.end;
    return values.sort()[wanted];
  }

  histogram(columns) {
    const counts = new Float64Array(columns);
    const scale = columns / (this.end - this.start);
    for (let i = 0; i < this.x.length; i++) {
      if (!Number.isNaN(this.x[i]))
        counts[Math.min(columns - 1, Math.floor((this.x[i] - this.start) * scale))]++;
    }
    return counts;
  }
}

// The group of a process's name: p0, p1 and p2 are one group, so are web/1 and web/2, and pods of one
// deployment.
function groupOf(name) {
  const slash = name.indexOf("/");
  if (slash > 0) return name.slice(0, slash);
  const pod = /^(.+?)-[0-9a-f]{6,10}-[0-9a-z]{5}$/.exec(name);
  if (pod) return pod[1];
  return name.replace(/[-_.:#~]?\d+$/, "") || name;
}
