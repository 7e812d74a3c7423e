// Drawing a picture on a canvas. Cost of a frame: one pass over the events and edges of the scene; what is
// drawn is bounded by the pixels, however many events there are.

const AXIS = 30, PAD = 10;
const MOST_SHAPES = 4000;  // events drawn one by one; where there are more, columns of them are drawn
const MOST_LINES = 1000;
const MOST_BENT = 400;  // where there are more lines, they are straight
const COLUMN = 3;  // pixels
const NEUTRAL = 0, PAST = 1, FUTURE = 2, DIM = 3, CHOSEN = 4;

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.sprites = new Map();
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(`--${name}`).trim();
    this.colour = Object.fromEntries(["ink", "paper", "board", "dim", "rule", "lane", "message", "past", "future",
      "faint", "fault", "held", "event"].map(name => [name, colour(name)]));
    this.classes = [this.colour.event, this.colour.past, this.colour.future, this.colour.faint, this.colour.ink];
    this.lines = [this.colour.message, this.colour.past, this.colour.future, this.colour.faint, this.colour.ink];
    this.font = style.getPropertyValue("--font").trim() || "system-ui, sans-serif";
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.width = Math.max(200, box.width);
    this.height = Math.max(120, box.height);
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
  }

  // The width of the column of names: as wide as the longest, within reason.
  layout(picture, port) {
    this.context.font = `600 12px ${this.font}`;
    const most = Math.min(220, this.width * 0.3);
    let widest = 88;
    for (const lane of picture.lanes.slice(0, 400)) {
      widest = Math.max(widest, this.context.measureText(lane.name.slice(0, 60)).width + 24);
      if (widest >= most) break;
    }
    this.left = Math.min(most, widest);
    const room = this.height - AXIS - 2 * PAD;
    this.laneHeight = Math.max(14, Math.min(76, room / Math.max(1, picture.lanes.length))) * port.stretch;
    this.tall = picture.lanes.length * this.laneHeight + 2 * PAD;
    // Few lanes on a tall screen stand in its middle.
    this.top = AXIS + Math.max(PAD, (room - picture.lanes.length * this.laneHeight) / 2);
  }

  y(lane) { return this.top + (lane + 0.5) * this.laneHeight - this.port.y; }
  sx(x) { return this.left + (x - this.port.x) * this.port.k; }
  place(i) { return [this.sx(this.picture.x[i]), this.y(this.picture.laneOf[this.picture.scene.process[i]])]; }

  paint(picture, port, marks) {
    Object.assign(this, { picture, port, marks });
    const { context: g } = this;
    g.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    g.fillStyle = this.colour.board;
    g.fillRect(0, 0, this.width, this.height);
    this.from = port.x - 12 / port.k;
    this.to = port.x + (this.width - this.left + 12) / port.k;
    this.gather();
    const { scene } = this;
    this.paintLanes();
    this.paintBreaks();
    if (scene.window) this.paintFar();
    if (!this.dense) this.paintHeld();
    this.paintEdges();
    if (this.dense) this.paintColumns();
    else this.paintEvents();
    this.paintPath();
    this.paintFaults();
    if (!this.dense) this.paintLabels();
    this.paintAxis();
    this.paintNames();
  }

  // Which lanes and how many events are in view.
  gather() {
    const { picture } = this, { scene } = picture;
    const first = Math.max(0, Math.floor((AXIS + this.port.y - this.top) / this.laneHeight));
    const last = Math.min(picture.lanes.length, Math.ceil((this.height + this.port.y - this.top) / this.laneHeight));
    this.shown = [];
    this.visible = 0;
    for (let lane = first; lane < last; lane++) {
      for (const p of picture.lanes[lane].members) {
        const [from, to] = picture.stretch(p, this.from, this.to);
        this.shown.push([p, from, to]);
        this.visible += to - from;
      }
    }
    this.lanesShown = [first, last];
    this.dense = this.visible > MOST_SHAPES;
    this.scene = scene;
  }

  paintLanes() {
    const { context: g } = this;
    g.strokeStyle = this.colour.lane;
    g.lineWidth = 1;
    g.beginPath();
    for (let lane = this.lanesShown[0]; lane < this.lanesShown[1]; lane++) {
      const y = Math.round(this.y(lane)) + 0.5;
      g.moveTo(this.left, y);
      g.lineTo(this.width, y);
    }
    g.stroke();
  }

  paintBreaks() {
    if (!this.picture.breaks) return;
    const { context: g } = this;
    g.fillStyle = this.colour.rule;
    let last = -9;
    for (const [x] of this.picture.breaks) {
      const at = this.sx(x);
      if (at < this.left || at > this.width || at - last < 6) continue;
      last = at;
      g.fillRect(at - 1, AXIS, 2, this.height - AXIS);
    }
  }

  // Columns of a few pixels, as high as there are events in them; the colour is that of the last class seen.
  paintColumns() {
    const { context: g, picture } = this;
    const columns = Math.ceil((this.width - this.left) / COLUMN) + 1;
    const counts = new Int32Array(columns), classes = new Uint8Array(columns);
    const batches = this.classes.map(() => []);
    const most = Math.max(3, this.laneHeight * 0.7), scale = this.port.k / COLUMN;
    for (let lane = this.lanesShown[0]; lane < this.lanesShown[1]; lane++) {
      counts.fill(0);
      for (const p of picture.lanes[lane].members) {
        const [from, to] = picture.stretch(p, this.port.x, this.to);
        for (let i = from; i < to; i++) {
          const column = Math.floor((picture.x[i] - this.port.x) * scale);
          if (!(column >= 0 && column < columns)) continue;
          counts[column]++;
          const kind = this.marks.classOf(i);
          if (counts[column] === 1 || kind !== DIM) classes[column] = kind;
        }
      }
      const y = this.y(lane);
      for (let column = 0; column < columns; column++) {
        if (!counts[column]) continue;
        const high = Math.min(most, 3 + 1.5 * (counts[column] - 1));
        batches[classes[column]].push(this.left + column * COLUMN, y - high / 2, high);
      }
    }
    batches.forEach((batch, kind) => {
      g.fillStyle = kind === NEUTRAL ? this.colour.message : this.classes[kind];
      for (let k = 0; k < batch.length; k += 3) g.fillRect(batch[k], batch[k + 1], COLUMN - 0.5, batch[k + 2]);
    });
  }

  // What a server has not been asked for yet: how many events there are, from the overview.
  paintFar() {
    const { context: g, picture, scene } = this, columns = 1024;
    if (picture.view !== "space" || picture.axis !== "logical" || picture.breaks) return;
    const wide = scene.depth / columns, [low, high] = scene.window;
    const each = scene.overview.length >= scene.processes.length * columns;
    g.fillStyle = this.colour.message;
    for (let lane = this.lanesShown[0]; each && lane < this.lanesShown[1]; lane++) {
      for (let column = 0; column < columns; column++) {
        const from = 1 + column * wide, to = from + wide;
        if (to < this.from || from > this.to || from >= low && to <= high + 1) continue;
        let events = 0;
        for (const p of picture.lanes[lane].members) events += scene.overview[p * columns + column];
        if (!events) continue;
        const x = this.sx(from), width = Math.max(1, wide * this.port.k - 0.5);
        const tall = Math.min(this.laneHeight * 0.7, 3 + 1.5 * events * COLUMN / Math.max(COLUMN, width));
        g.fillRect(x, this.y(lane) - tall / 2, width, tall);
      }
    }
  }

  paintHeld() {
    const { context: g, scene } = this;
    const high = Math.min(7, this.laneHeight * 0.25);
    g.fillStyle = this.colour.held;
    g.globalAlpha = this.marks.pastOf || this.marks.onFault ? 0.35 : 1;
    for (const [, from, to] of this.shown) {
      for (let i = from; i < to; i++) {
        const arrival = scene.arrival[i];
        if (arrival < 0 || this.picture.view !== "space" || i - arrival < 2) continue;
        const [x, y] = this.place(arrival);
        g.fillRect(x, y - high / 2, this.place(i)[0] - x, high);
      }
    }
    g.globalAlpha = 1;
  }

  paintEdges() {
    const { picture } = this, { from, to } = picture.edges, x = picture.x;
    const seen = [];
    // Where several levels share a pixel, all lines would stand upright and tell nothing.
    const drawn = this.port.k * picture.unit < 0.2 ? 0 : from.length;
    for (let k = 0; k < drawn; k++) {
      // NaN, for what is not shown, makes both comparisons false.
      if (x[from[k]] <= this.to && x[to[k]] >= this.from) seen.push(k);
      else if (x[to[k]] <= this.to && x[from[k]] >= this.from) seen.push(k);
    }
    this.linesInView = seen.length;
    const chosen = seen.length > MOST_LINES ? this.thinned(seen) : seen;
    this.linesShown = chosen;
    const batches = this.lines.map(() => []);
    for (const k of chosen) batches[this.edgeClass(from[k], to[k])].push(k);
    for (const kind of [DIM, NEUTRAL, PAST, FUTURE, CHOSEN]) this.strokeEdges(batches[kind], kind, seen.length);
    if (seen.length <= MOST_LINES) this.paintLost();
  }

  // Of very many lines, one for each pair of lanes and stretch of some pixels.
  thinned(seen) {
    const { picture } = this, { from, to } = picture.edges, { scene } = picture;
    const width = this.width / 60, kept = new Map();
    const lanes = picture.lanes.length;
    const [first, last] = this.lanesShown, lit = Boolean(this.marks.pastOf);
    for (const k of seen) {
      const a = picture.laneOf[scene.process[from[k]]], b = picture.laneOf[scene.process[to[k]]];
      if (Math.max(a, b) < first || Math.min(a, b) >= last) continue;
      const key = (Math.floor(this.sx(picture.x[from[k]]) / width) * lanes + a) * lanes + b;
      // Lines that are lit go before those that are not.
      if (!kept.has(key)) kept.set(key, k);
      else if (lit && this.edgeClass(from[k], to[k]) !== DIM && this.edgeClass(from[kept.get(key)], to[kept.get(key)]) === DIM) kept.set(key, k);
    }
    const all = [...kept.values()], step = Math.ceil(all.length / MOST_LINES);
    return step > 1 ? all.filter((k, n) => n % step === 0 || lit && this.edgeClass(from[k], to[k]) !== DIM) : all;
  }

  edgeClass(i, j) {
    if (this.marks.fault >= 0) return DIM;
    const a = this.marks.classOf(i), b = this.marks.classOf(j);
    if (a === NEUTRAL && b === NEUTRAL) return NEUTRAL;
    if ((a === PAST || a === CHOSEN) && (b === PAST || b === CHOSEN)) return PAST;
    if ((a === FUTURE || a === CHOSEN) && (b === FUTURE || b === CHOSEN)) return FUTURE;
    return DIM;
  }

  strokeEdges(batch, kind, inView) {
    if (!batch.length) return;
    const { context: g } = this, { from, to } = this.picture.edges;
    const crowded = inView > MOST_LINES;
    g.globalAlpha = crowded ? 0.5 : 1;
    g.strokeStyle = g.fillStyle = this.lines[kind];
    // Lines one pixel wide are drawn many times faster than wider ones, and wider ones one by one much faster
    // than as one path.
    g.lineWidth = crowded || batch.length > 300 || kind === NEUTRAL || kind === DIM ? 1 : 1.6;
    for (const k of batch) {
      g.beginPath();
      this.line(g, from[k], to[k]);
      g.stroke();
    }
    if (!crowded && kind !== DIM) {
      for (const k of batch) {
        g.beginPath();
        this.head(g, from[k], to[k], 6);
        g.fill();
      }
    }
    g.globalAlpha = 1;
  }

  // A straight line, bent where it would run through an event that it does not belong to; or an arc above the
  // lane where both ends stand on one.
  line(g, i, j) {
    const [ax, ay] = this.place(i), [bx, by] = this.place(j);
    g.moveTo(ax, ay);
    if (ay === by && Math.abs(i - j) > 1) {
      g.quadraticCurveTo((ax + bx) / 2, ay - Math.min(this.laneHeight * 0.7, 8 + Math.abs(bx - ax) / 6), bx, by);
      return;
    }
    const bends = this.bends(i, j, ax, ay, bx, by);
    bends.forEach(([x, y], n) => {
      const [nextX, nextY] = bends[n + 1] || [bx, by];
      g.quadraticCurveTo(x, y, n + 1 < bends.length ? (x + nextX) / 2 : nextX, n + 1 < bends.length ? (y + nextY) / 2 : nextY);
    });
    if (!bends.length) g.lineTo(bx, by);
  }

  // Points beside the events that a straight line between two places would run through.
  bends(i, j, ax, ay, bx, by) {
    const { picture } = this, { scene } = picture, found = [];
    if (this.linesInView > MOST_BENT || this.laneHeight < 24) return found;
    const [from, to] = [picture.laneOf[scene.process[i]], picture.laneOf[scene.process[j]]];
    const side = Math.sign(to - from), reach = this.radius + 3;
    for (let lane = from + side; side && lane !== to; lane += side) {
      const y = this.y(lane), x = ax + (y - ay) / (by - ay) * (bx - ax), at = this.port.x + (x - this.left) / this.port.k;
      for (const p of picture.lanes[lane].members) {
        const [first, end] = picture.stretch(p, at - reach / this.port.k, at + reach / this.port.k);
        if (end - first > 8) continue;
        for (let e = first; e < end; e++) {
          const apart = x - this.sx(picture.x[e]);
          // The control point of a curve lies twice as far as the curve goes.
          if (Math.abs(apart) < reach) found.push([x + (apart < 0 ? -2 : 2) * (reach + 3 - Math.abs(apart)), y]);
        }
      }
    }
    return found;
  }

  head(g, i, j, size) {
    const [ax, ay] = this.place(i), [bx, by] = this.place(j);
    let dx = bx - ax, dy = by - ay;
    if (ay === by && Math.abs(i - j) > 1) dy = Math.min(this.laneHeight * 0.7, 8 + Math.abs(dx) / 6) * 2;
    else {
      const bends = this.bends(i, j, ax, ay, bx, by);
      if (bends.length) [dx, dy] = [bx - bends[bends.length - 1][0], by - bends[bends.length - 1][1]];
    }
    const length = Math.hypot(dx, dy) || 1;
    if (length < size * 2.5) return;
    dx /= length; dy /= length;
    const tipX = bx - dx * 5, tipY = by - dy * 5;
    const baseX = tipX - dx * size, baseY = tipY - dy * size, side = size * 0.45;
    g.moveTo(tipX, tipY);
    g.lineTo(baseX - dy * side, baseY + dx * side);
    g.lineTo(baseX + dy * side, baseY - dx * side);
    g.closePath();
  }

  // A message that never arrived: a short line towards its destination that ends in a cross.
  paintLost() {
    const { context: g, scene, picture } = this;
    if (picture.view !== "space") return;
    g.strokeStyle = this.colour.fault;
    g.lineWidth = 1.2;
    g.setLineDash([3, 3]);
    const ends = [];
    g.beginPath();
    for (let k = 0; k < scene.lost_send.length && ends.length < MOST_LINES; k++) {
      const send = scene.lost_send[k], lane = picture.laneOf[scene.lost_dest[k]];
      if (lane < 0 || !(picture.x[send] >= this.from && picture.x[send] <= this.to)) continue;
      const [x, y] = this.place(send), dy = (this.y(lane) - y) || -this.laneHeight;
      const dx = Math.min(26, Math.abs(dy) * 0.4), length = Math.min(0.7, 40 / Math.abs(dy));
      g.moveTo(x, y);
      g.lineTo(x + dx * length, y + dy * length);
      ends.push([x + dx * length, y + dy * length]);
    }
    g.stroke();
    g.setLineDash([]);
    g.beginPath();
    for (const [x, y] of ends) {
      g.moveTo(x - 3, y - 3); g.lineTo(x + 3, y + 3);
      g.moveTo(x - 3, y + 3); g.lineTo(x + 3, y - 3);
    }
    g.stroke();
  }

  get radius() { return Math.max(2.2, Math.min(5, this.laneHeight / 5, Math.max(2.2, this.port.k * this.picture.unit * 0.3))); }

  paintEvents() {
    const { scene, picture } = this;
    const batches = new Map();
    for (const [, from, to] of this.shown) {
      for (let i = from; i < to; i++) {
        if (!(picture.x[i] >= this.from && picture.x[i] <= this.to)) continue;
        const key = this.marks.classOf(i) * 4 + scene.kind[i];
        if (!batches.has(key)) batches.set(key, []);
        batches.get(key).push(i);
      }
    }
    const order = [DIM, NEUTRAL, PAST, FUTURE, CHOSEN];
    const keys = [...batches.keys()].sort((a, b) => order.indexOf(a >> 2) - order.indexOf(b >> 2));
    for (const key of keys) this.shapes(batches.get(key), key & 3, this.classes[key >> 2]);
  }

  // Sends are discs, arrivals rings, deliveries diamonds, internal events small squares.
  shapes(events, kind, colour) {
    const sprite = this.sprite(kind, colour), half = sprite.width / this.ratio / 2;
    for (const i of events) {
      const [x, y] = this.place(i);
      this.context.drawImage(sprite, x - half, y - half, 2 * half, 2 * half);
    }
  }

  // A shape drawn once: copying it is faster than drawing it anew for every event.
  sprite(kind, colour) {
    const r = Math.round(this.radius * 4) / 4, key = `${kind} ${colour} ${r} ${this.ratio}`;
    if (!this.sprites.has(key)) {
      const sheet = document.createElement("canvas"), half = Math.ceil(r * 1.3) + 2, g = sheet.getContext("2d");
      sheet.width = sheet.height = 2 * half * this.ratio;
      g.scale(this.ratio, this.ratio);
      g.beginPath();
      shape(g, kind, half, half, r);
      g.lineWidth = 1.5;
      g.fillStyle = kind === 1 ? this.colour.board : colour;
      g.strokeStyle = colour;
      g.fill();
      if (kind === 1) g.stroke();
      if (this.sprites.size > 500) this.sprites.clear();
      this.sprites.set(key, sheet);
    }
    return this.sprites.get(key);
  }

  paintPath() {
    const { context: g, picture } = this, { path, chosen, hover, matchAt } = this.marks;
    if (path && path.length > 1) {
      g.lineJoin = "round";
      for (const [width, colour] of [[7, this.colour.board], [3, this.marks.pathColour]]) {
        g.lineWidth = width;
        g.strokeStyle = colour;
        g.beginPath();
        path.forEach((i, n) => {
          if (n && !Number.isNaN(picture.x[i])) this.line(g, path[n - 1], i);
        });
        g.stroke();
      }
      g.fillStyle = this.marks.pathColour;
      g.beginPath();
      path.forEach((i, n) => { if (n) this.head(g, path[n - 1], i, 9); });
      g.fill();
      for (const [from, to] of this.marks.links) {
        g.lineWidth = 2;
        g.setLineDash([6, 4]);
        g.strokeStyle = g.fillStyle = this.marks.pathColour;
        g.beginPath();
        this.line(g, from, to);
        g.stroke();
        g.setLineDash([]);
        g.beginPath();
        this.head(g, from, to, 9);
        g.fill();
      }
      for (const i of path) this.shapes([i], picture.scene.kind[i], this.marks.pathColour);
    }
    for (const i of chosen) this.ring(i, this.colour.ink, 4, 2.4);
    if (matchAt >= 0) this.ring(matchAt, this.colour.held, 6, 3);
    if (hover >= 0) this.ring(hover, this.colour.dim, 3, 1.5);
  }

  ring(i, colour, room, width) {
    const [x, y] = this.place(i);
    if (!(x >= this.left - 20 && x <= this.width + 20)) return;
    const { context: g } = this;
    g.strokeStyle = colour;
    g.lineWidth = width;
    g.beginPath();
    g.arc(x, y, this.radius + room, 0, 7);
    g.stroke();
    if (this.dense) {
      g.fillStyle = colour;
      g.beginPath();
      g.arc(x, y, 2.5, 0, 7);
      g.fill();
    }
  }

  paintFaults() {
    for (const i of this.marks.fault >= 0 ? this.marks.chosen : this.marks.faulty) {
      if (i >= 0 && this.picture.x[i] >= this.from && this.picture.x[i] <= this.to
        && this.picture.laneOf[this.scene.process[i]] >= 0) this.ring(i, this.colour.fault, 3, 2);
    }
  }

  // Names below events, where there is room: never one over another.
  paintLabels() {
    if (this.laneHeight < 30) return;
    const { context: g, scene, picture } = this;
    g.font = `11px ${this.font}`;
    g.textAlign = "center";
    g.textBaseline = "top";
    g.strokeStyle = this.colour.board;
    g.lineWidth = 3;
    g.lineJoin = "round";
    for (let lane = this.lanesShown[0]; lane < this.lanesShown[1]; lane++) {
      if (picture.lanes[lane].members.length > 1) continue;
      const [p] = picture.lanes[lane].members, [from, to] = picture.stretch(p, this.from, this.to);
      let right = this.left;
      for (let i = from; i < to; i++) {
        const x = this.sx(picture.x[i]);
        const after = scene.process[i + 1] === p ? this.sx(picture.x[i + 1]) : NaN;
        const next = Number.isNaN(after) ? x + 400 : after;
        const text = scene.kind[i] === 3 ? scene.text(scene.label[i]) : scene.messageOf(i);
        if (!text || !(x >= this.left)) continue;
        const room = 2 * Math.min(x - right, next - x) - 4;
        const shown = room < 20 ? "" : this.fitted(text, room);
        if (!shown) continue;
        const width = g.measureText(shown).width;
        g.strokeText(shown, x, this.y(lane) + this.radius + 4);
        g.fillStyle = this.marks.classOf(i) === DIM ? this.colour.faint : this.colour.dim;
        g.fillText(shown, x, this.y(lane) + this.radius + 4);
        right = x + width / 2 + 4;
      }
    }
    g.textAlign = "left";
  }

  // As much of a text as fits, at least three letters of it or nothing; on one line and in one direction.
  fitted(text, width) {
    const { context: g } = this;
    let line = text.slice(0, 80).replace(/\s+/g, " ");
    if (g.measureText(line).width <= width) return line;
    while (line.length > 3 && g.measureText(`${line}…`).width > width) {
      line = [...line].slice(0, -Math.max(1, line.length >> 3)).join("");
    }
    return line.length >= 3 && g.measureText(`${line}…`).width <= width ? `${line}…` : "";
  }

  paintAxis() {
    const { context: g } = this;
    g.fillStyle = this.colour.paper;
    g.fillRect(0, 0, this.width, AXIS);
    g.fillStyle = this.colour.rule;
    g.fillRect(0, AXIS - 1, this.width, 1);
    g.font = `11px ${this.font}`;
    g.textBaseline = "middle";
    g.textAlign = "center";
    const time = this.picture.axis === "time" && this.picture.view !== "hasse";
    const step = niceStep(90 / this.port.k, !time);
    if (this.picture.breaks) return this.caption(g, "quiet stretches shortened");
    for (let x = Math.ceil(this.port.x / step) * step; this.sx(x) < this.width; x += step) {
      const at = this.sx(x);
      if (at < this.left + 10 || !time && x < 1) continue;
      g.fillStyle = this.colour.rule;
      g.fillRect(Math.round(at), AXIS - 6, 1, 5);
      g.fillStyle = this.colour.dim;
      g.fillText(time ? duration(x + 0, step) : x.toLocaleString("en"), at, AXIS / 2 - 1);
    }
    this.caption(g, time ? "time" : this.picture.view === "hasse" ? "level" : "logical time");
  }

  caption(g, text) {
    g.textAlign = "left";
    g.textBaseline = "middle";
    g.fillStyle = this.colour.paper;
    g.fillRect(0, 0, this.left, AXIS - 1);
    g.font = `11px ${this.font}`;
    g.fillStyle = this.colour.dim;
    g.fillText(this.fitted(text, this.left - 16), 12, AXIS / 2 - 1);
  }

  paintNames() {
    const { context: g, picture } = this;
    g.fillStyle = this.colour.paper;
    g.fillRect(0, AXIS, this.left, this.height - AXIS);
    g.fillStyle = this.colour.rule;
    g.fillRect(this.left - 1, 0, 1, this.height);
    g.textBaseline = "middle";
    g.textAlign = "left";
    const chosen = new Set(this.marks.chosen.map(i => picture.laneOf[picture.scene.process[i]]));
    const small = this.laneHeight < 16;
    for (let lane = this.lanesShown[0]; lane < this.lanesShown[1]; lane++) {
      const y = this.y(lane);
      if (y < AXIS + 4) continue;
      g.font = `${chosen.has(lane) ? "700" : "500"} ${small ? 10 : 12}px ${this.font}`;
      g.fillStyle = this.colour.ink;
      g.fillText(this.fitted(picture.lanes[lane].name, this.left - 20) || picture.lanes[lane].name.slice(0, 2), 12, y);
    }
    g.fillStyle = this.colour.paper;
    g.fillRect(0, 0, this.left - 1, AXIS - 1);
    const time = picture.axis === "time" && picture.view === "space";
    this.caption(g, picture.breaks ? "shortened" : time ? "time" : picture.view === "hasse" ? "level" : "logical time");
  }

  // The event at a point, within a few pixels; -1 if there is none.
  eventAt(px, py) {
    const { picture, port } = this;
    if (px < this.left || py < AXIS) return -1;
    const near = Math.floor((py + port.y - this.top) / this.laneHeight);
    let best = -1, least = 14 ** 2;
    for (let lane = Math.max(0, near - 1); lane <= Math.min(picture.lanes.length - 1, near + 1); lane++) {
      const dy = this.y(lane) - py;
      if (Math.abs(dy) > 14) continue;
      for (const p of picture.lanes[lane].members) {
        const x = port.x + (px - this.left) / port.k;
        const [from, to] = picture.stretch(p, x - 14 / port.k, x + 14 / port.k);
        for (let i = from; i < to; i++) {
          const distance = (this.sx(picture.x[i]) - px) ** 2 + dy ** 2;
          if (distance < least) { least = distance; best = i; }
        }
      }
    }
    return best;
  }

  // The line at a point, as [from, to]; null if there is none or lines are too many to tell apart.
  lineAt(px, py) {
    if (!this.linesShown || this.linesInView > MOST_LINES || px < this.left || py < AXIS) return null;
    const { from, to } = this.picture.edges;
    let best = null, least = 5;
    for (const k of this.linesShown) {
      const [ax, ay] = this.place(from[k]), [bx, by] = this.place(to[k]);
      const square = (bx - ax) ** 2 + (by - ay) ** 2 || 1;
      const t = Math.max(0, Math.min(1, ((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / square));
      const distance = Math.hypot(ax + t * (bx - ax) - px, ay + t * (by - ay) - py);
      if (distance < least) { least = distance; best = [from[k], to[k]]; }
    }
    return best;
  }
}

function shape(g, kind, x, y, r) {
  if (kind === 0) { g.moveTo(x + r, y); g.arc(x, y, r, 0, 7); }
  else if (kind === 1) { g.moveTo(x + r * 0.9, y); g.arc(x, y, r * 0.9, 0, 7); }
  else if (kind === 2) {
    const d = r * 1.25;
    g.moveTo(x, y - d); g.lineTo(x + d, y); g.lineTo(x, y + d); g.lineTo(x - d, y); g.closePath();
  } else g.rect(x - r * 0.75, y - r * 0.75, r * 1.5, r * 1.5);
}

function niceStep(least, whole) {
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(m => m * power).find(m => m >= least);
  return whole ? Math.max(1, step) : step;
}

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

// Nanoseconds for people; `step` says how fine the difference must be.
function duration(ns, step = 0) {
  const size = Math.max(Math.abs(ns), step);
  const [unit, scale] = UNITS.find(([, s]) => size >= s) || UNITS[3];
  const digits = step ? Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / scale)))) : 3;
  const text = (ns / scale).toFixed(digits);
  return `${step ? text : String(Number(text))} ${unit}`;
}
