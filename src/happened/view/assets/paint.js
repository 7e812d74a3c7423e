// Drawing a picture on a canvas. A frame takes one pass over the events and edges of the scene; the number of
// drawn shapes is bounded by the pixels, however many events there are.

const LEAST_LABEL = 120; // pixels that a label may take from the labels of later events
const LEAST_LETTERS = 10; // a longer label cut to fewer letters is useless
const LABEL_HEIGHT = 12;
const MOST_AVOIDED = 100; // with more lines, labels are always below their events
const NARROW = 4; // least width of a letter, in pixels: labels that cannot fit need not be measured

class Painter extends Lines {
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
    if (this.marks.story && picture.view === "space") this.paintStep(this.marks.story.step);
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

  // Find the lanes and the number of events in view.
  gather() {
    const { picture } = this,
      { scene } = picture;
    const first = Math.max(0, Math.floor((AXIS + this.port.y - this.top) / this.laneHeight));
    const last = Math.min(
      picture.lanes.length,
      Math.ceil((this.height + this.port.y - this.top) / this.laneHeight),
    );
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

  // Highlight the column of the current step of a story.
  paintStep(step) {
    const from = Math.max(this.left, this.sx(step - 0.5));
    this.context.fillStyle = this.colour.soft;
    if (step) this.context.fillRect(from, AXIS, this.sx(step + 0.5) - from, this.height - AXIS);
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

  // Draw columns of a few pixels, as high as they have events, in the colour of the last class among them.
  paintColumns() {
    const { context: g, picture } = this;
    const columns = Math.ceil((this.width - this.left) / COLUMN) + 1;
    const counts = new Int32Array(columns),
      classes = new Uint8Array(columns);
    const batches = this.classes.map(() => []);
    const most = Math.max(3, this.laneHeight * 0.7),
      scale = this.port.k / COLUMN;
    for (let lane = this.lanesShown[0]; lane < this.lanesShown[1]; lane++) {
      counts.fill(0);
      for (const p of picture.lanes[lane].members) {
        const [from, to] = picture.stretch(p, this.port.x, this.to);
        for (let i = from; i < to; i++) {
          const column = Math.floor((picture.x[i] - this.port.x) * scale);
          const kind = this.marks.classOf(i);
          if (!(column >= 0 && column < columns) || kind === LATER) continue;
          counts[column]++;
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
      for (let k = 0; k < batch.length; k += 3)
        g.fillRect(batch[k], batch[k + 1], COLUMN - 0.5, batch[k + 2]);
    });
  }

  // Draw event counts from the overview where the server has not been asked for events yet.
  paintFar() {
    const { context: g, picture, scene } = this,
      columns = 1024;
    if (picture.view !== "space" || picture.axis !== "logical" || picture.breaks) return;
    const wide = scene.depth / columns,
      [low, high] = scene.window;
    const each = scene.overview.length >= scene.processes.length * columns;
    g.fillStyle = this.colour.message;
    for (let lane = this.lanesShown[0]; each && lane < this.lanesShown[1]; lane++) {
      for (let column = 0; column < columns; column++) {
        const from = 1 + column * wide,
          to = from + wide;
        if (to < this.from || from > this.to || (from >= low && to <= high + 1)) continue;
        let events = 0;
        for (const p of picture.lanes[lane].members) events += scene.overview[p * columns + column];
        if (!events) continue;
        const x = this.sx(from),
          width = Math.max(1, wide * this.port.k - 0.5);
        const tall = Math.min(this.laneHeight * 0.7, 3 + (1.5 * events * COLUMN) / Math.max(COLUMN, width));
        g.fillRect(x, this.y(lane) - tall / 2, width, tall);
      }
    }
  }

  paintHeld() {
    if (this.picture.view !== "space") return;
    const { context: g, scene, picture } = this;
    const high = Math.min(7, this.laneHeight * 0.25);
    const holds = this.marks.story ? this.marks.story.holds : scene.holds.map(([a, i]) => [a, picture.x[i]]);
    g.fillStyle = this.colour.held;
    g.globalAlpha = this.marks.pastOf || this.marks.lit ? 0.35 : 1;
    for (const [arrival, until] of holds) {
      if (!(picture.x[arrival] <= this.to && until >= this.from)) continue; // false for NaN: hidden
      const [x, y] = this.place(arrival);
      g.fillRect(x, y - high / 2, this.sx(until) - x, high);
    }
    g.globalAlpha = 1;
  }

  paintEvents() {
    const { scene, picture } = this;
    const batches = new Map();
    for (const [, from, to] of this.shown) {
      for (let i = from; i < to; i++) {
        if (!(picture.x[i] >= this.from && picture.x[i] <= this.to)) continue;
        const kind = this.marks.classOf(i);
        if (kind === LATER) continue;
        const key = kind * 8 + scene.kind[i];
        if (!batches.has(key)) batches.set(key, []);
        batches.get(key).push(i);
      }
    }
    const order = [DIM, NEUTRAL, PAST, FUTURE, CHOSEN];
    const keys = [...batches.keys()].sort((a, b) => order.indexOf(a >> 3) - order.indexOf(b >> 3));
    for (const key of keys) this.shapes(batches.get(key), key & 7, this.classes[key >> 3]);
  }

  paintPath() {
    const { context: g, picture } = this,
      { path, chosen, hover, matchAt } = this.marks;
    if (path && path.length > 1) {
      g.lineJoin = "round";
      for (const [width, colour] of [
        [7, this.colour.board],
        [3, this.marks.pathColour],
      ]) {
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
      path.forEach((i, n) => {
        if (n) this.head(g, path[n - 1], i, 9);
      });
      g.fill();
    }
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
    for (const i of path || []) this.shapes([i], picture.scene.kind[i], this.marks.pathColour);
    for (const i of chosen) this.ring(i, this.colour.ink, 4, 2.4);
    if (matchAt >= 0) this.ring(matchAt, this.colour.held, 6, 3);
    if (hover >= 0) this.ring(hover, this.colour.dim, 3, 1.5);
  }

  paintFaults() {
    for (const i of this.marks.fault >= 0 ? this.marks.chosen : this.marks.faulty) {
      if (
        i >= 0 &&
        this.picture.x[i] >= this.from &&
        this.picture.x[i] <= this.to &&
        this.picture.laneOf[this.scene.process[i]] >= 0 &&
        ![DIM, LATER].includes(this.marks.classOf(i))
      )
        this.ring(i, this.colour.fault, 3, 2);
    }
  }

  // Draw labels below events where there is room; labels never overlap.
  paintLabels() {
    if (this.laneHeight < 30) return;
    const { context: g, scene, picture } = this;
    g.font = `11px ${this.font}`;
    g.textAlign = "center";
    g.textBaseline = "top";
    g.strokeStyle = this.colour.board;
    g.lineWidth = 3;
    g.lineJoin = "round";
    this.labels = [];
    for (let lane = this.lanesShown[0]; lane < this.lanesShown[1]; lane++) {
      if (picture.lanes[lane].members.length > 1) continue;
      const [p] = picture.lanes[lane].members,
        [from, to] = picture.stretch(p, this.from, this.to);
      let right = this.left;
      for (let i = from; i < to; i++) {
        const x = this.sx(picture.x[i]);
        const after = scene.process[i + 1] === p ? this.sx(picture.x[i + 1]) : NaN;
        const next = Number.isNaN(after) ? x + 400 : after;
        const text = scene.text(scene.label[i]) || scene.messageOf(i);
        if (!text || !(x >= this.left) || this.marks.classOf(i) === LATER) continue;
        // Where events are close together, the label of the first may cover the space for the labels of later
        // ones.
        const room = Math.min(2 * (x - right), Math.max(LEAST_LABEL, 2 * (next - x))) - 4;
        const least = Math.min(text.length, LEAST_LETTERS);
        const shown = room < Math.max(20, least * NARROW) ? "" : this.fitted(text, room);
        if (!shown || shown.length < least) continue;
        const width = g.measureText(shown).width;
        const middle = Math.max(this.left + width / 2, Math.min(x, this.width - width / 2 - 4));
        if (middle - width / 2 < right) continue;
        const top = this.labelTop(middle, this.y(lane), width);
        g.strokeText(shown, middle, top);
        g.fillStyle = this.marks.classOf(i) === DIM ? this.colour.faint : this.colour.dim;
        g.fillText(shown, middle, top);
        this.labels.push([shown, middle, top, width]);
        right = middle + width / 2 + 4;
      }
    }
    g.textAlign = "left";
  }

  // Where an event's label stands: below it, or above it if fewer lines cross the label there.
  labelTop(middle, y, width) {
    const below = y + this.radius + 4,
      above = y - this.radius - 4 - LABEL_HEIGHT;
    if (this.linesInView > MOST_AVOIDED) return below;
    const struck = top => this.linesShown.filter(k => this.strikes(k, middle, top, width)).length;
    return struck(above) < struck(below) ? above : below;
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
    if (this.picture.breaks) return;
    for (let x = Math.ceil(this.port.x / step) * step; this.sx(x) < this.width; x += step) {
      const at = this.sx(x);
      if (at < this.left + 10 || (!time && x < 1)) continue;
      g.fillStyle = this.colour.rule;
      g.fillRect(Math.round(at), AXIS - 6, 1, 5);
      g.fillStyle = this.colour.dim;
      g.fillText(time ? duration(x + 0, step) : x.toLocaleString("en"), at, AXIS / 2 - 1);
    }
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
      g.fillText(
        this.fitted(picture.lanes[lane].name, this.left - 20) || picture.lanes[lane].name.slice(0, 2),
        12,
        y,
      );
    }
    g.fillStyle = this.colour.paper;
    g.fillRect(0, 0, this.left - 1, AXIS - 1);
    this.caption(g, this.axisName);
  }

  get axisName() {
    const { picture } = this;
    if (picture.breaks) return "shortened";
    if (picture.view === "hasse") return "level";
    if (picture.axis === "time") return "time";
    return this.marks.story ? "step" : "logical time";
  }

  laneNear(py) {
    return Math.floor((py + this.port.y - this.top) / this.laneHeight);
  }

  // The lane at this height; undefined above the first and below the last.
  laneAt(py) {
    return py < AXIS ? undefined : this.picture.lanes[this.laneNear(py)];
  }

  // The event at a point, within a few pixels; -1 if there is none.
  eventAt(px, py) {
    const { picture, port } = this;
    if (px < this.left || py < AXIS) return -1;
    const near = this.laneNear(py);
    let best = -1,
      least = 14 ** 2;
    for (let lane = Math.max(0, near - 1); lane <= Math.min(picture.lanes.length - 1, near + 1); lane++) {
      const dy = this.y(lane) - py;
      if (Math.abs(dy) > 14) continue;
      for (const p of picture.lanes[lane].members) {
        const x = port.x + (px - this.left) / port.k;
        const [from, to] = picture.stretch(p, x - 14 / port.k, x + 14 / port.k);
        for (let i = from; i < to; i++) {
          const distance = (this.sx(picture.x[i]) - px) ** 2 + dy ** 2;
          if (distance < least && this.marks.classOf(i) !== LATER) {
            least = distance;
            best = i;
          }
        }
      }
    }
    return best;
  }
}
