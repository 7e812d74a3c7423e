// The timeline of a request: one bar per span, children below their parents, as tracing tools show it.

const ROW = 24;

class SpanPicture {
  constructor(scene) {
    this.scene = scene;
    this.view = "spans";
    this.axis = "time";
    this.breaks = null;
    const children = new Map();
    for (let s = 0; s < scene.span_first.length; s++) {
      const parent = scene.span_parent[s];
      if (!children.has(parent)) children.set(parent, []);
      children.get(parent).push(s);
    }
    const byStart = (a, b) => (scene.span_start[a] || 0) - (scene.span_start[b] || 0) || a - b;
    this.rows = [];
    const stack = (children.get(-1) || [])
      .sort(byStart)
      .reverse()
      .map(s => [s, 0]);
    while (stack.length) {
      const [s, depth] = stack.pop();
      this.rows.push({ span: s, depth });
      for (const child of (children.get(s) || []).sort(byStart).reverse()) stack.push([child, depth + 1]);
    }
    // The processes of one service have one colour.
    const groups = [...new Set(scene.processes.map(groupOf))];
    this.shade = scene.processes.map(name => groups.indexOf(groupOf(name)));
    this.low = Infinity;
    this.high = -Infinity;
    for (const { span } of this.rows) {
      const [start, end] = this.times(span);
      if (start < this.low) this.low = start;
      if (end > this.high) this.high = end;
    }
    if (!(this.high > this.low)) {
      this.low = 0;
      this.high = 1;
    }
    this.unit = (this.high - this.low) / 50;
    this.start = this.low - this.unit / 2;
    this.end = this.high + this.unit;
    this.count = this.rows.length;
    this.lanes = this.rows;
  }

  // The start and end of a span's bar; a span without an end is drawn as its start.
  times(span) {
    const start = this.scene.span_start[span],
      end = this.scene.span_end[span];
    return [start, Number.isNaN(end) ? start : end];
  }

  reach() {
    return this.end;
  }

  histogram(columns) {
    const counts = new Float64Array(columns),
      scale = columns / (this.end - this.start);
    for (const { span } of this.rows) {
      const at = Math.floor((this.scene.span_start[span] - this.start) * scale);
      if (at >= 0 && at < columns) counts[at]++;
    }
    return counts;
  }
}

class SpanPainter extends Painter {
  layout(picture, port) {
    this.left = Math.min(340, this.width * 0.38);
    this.laneHeight = ROW * port.stretch;
    this.tall = picture.rows.length * this.laneHeight + 2 * PAD;
    this.top = AXIS + PAD;
  }

  paint(picture, port, marks) {
    Object.assign(this, { picture, port, marks, scene: picture.scene, linesShown: null });
    const { context: g } = this;
    g.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    g.fillStyle = this.colour.board;
    g.fillRect(0, 0, this.width, this.height);
    const first = Math.max(0, Math.floor((port.y - PAD) / this.laneHeight));
    const last = Math.min(
      picture.rows.length,
      Math.ceil((this.height + port.y - this.top) / this.laneHeight),
    );
    this.lanesShown = [first, last];
    for (let row = first; row < last; row++) this.bar(g, picture.rows[row], row);
    g.fillStyle = this.colour.paper;
    g.fillRect(0, AXIS, this.left - 1, this.height - AXIS);
    for (let row = first; row < last; row++) this.title(g, picture.rows[row], row);
    this.paintAxis();
    g.fillStyle = this.colour.rule;
    g.fillRect(this.left - 1, 0, 1, this.height);
    this.caption(g, `${picture.rows.length.toLocaleString("en")} spans`);
  }

  bar(g, { span }, row) {
    const { scene } = this.picture,
      y = this.y(row);
    if (row % 2) {
      g.fillStyle = this.colour.paper;
      g.fillRect(this.left, y - this.laneHeight / 2, this.width, this.laneHeight);
    }
    const [start, end] = this.picture.times(span).map(x => this.sx(x));
    const i = scene.span_first[span],
      high = this.laneHeight * 0.62;
    const chosen = this.marks.chosen.includes(i) || this.marks.chosen.includes(scene.span_last[span]);
    const kind = this.marks.classOf(i);
    g.fillStyle = chosen
      ? this.colour.ink
      : kind === NEUTRAL
        ? hue(this.picture.shade[scene.process[i]], this.dark)
        : this.classes[kind];
    const from = Math.max(start, this.left - 10),
      width = Math.max(2, Math.min(end, this.width + 10) - from);
    if (from < this.width + 10) g.fillRect(from, y - high / 2, width, high);
    const told = duration(scene.span_end[span] - scene.span_start[span]);
    g.font = `11px ${this.font}`;
    g.textBaseline = "middle";
    const text = g.measureText(told).width,
      after = from + width + 6,
      before = start - text - 6;
    if (!told.startsWith("NaN") && from < this.width) {
      // Put the text behind the bar, before it, or inside if the bar fills the screen.
      const inside = after + text > this.width && before < this.left;
      g.fillStyle = inside ? this.colour.board : this.colour.dim;
      g.fillText(
        told,
        inside ? Math.min(from + width, this.width) - text - 8 : after + text <= this.width ? after : before,
        y,
      );
    }
    if (i === this.marks.hover) {
      g.strokeStyle = this.colour.ink;
      g.lineWidth = 1.5;
      g.strokeRect(from, y - high / 2, width, high);
    }
  }

  title(g, { span, depth }, row) {
    const { scene } = this.picture,
      i = scene.span_first[span],
      y = this.y(row);
    const indent = 10 + Math.min(depth, 12) * 12;
    g.fillStyle = hue(this.picture.shade[scene.process[i]], this.dark);
    g.fillRect(indent, y - 5, 3, 10);
    g.textBaseline = "middle";
    g.font = `600 12px ${this.font}`;
    g.fillStyle = this.colour.ink;
    const service = this.fitted(scene.processes[scene.process[i]], (this.left - indent) * 0.5);
    g.fillText(service, indent + 8, y);
    const used = g.measureText(service).width;
    g.font = `12px ${this.font}`;
    g.fillStyle = this.colour.dim;
    g.fillText(
      this.fitted(scene.text(scene.label[i]) || "", this.left - indent - used - 24),
      indent + used + 15,
      y,
    );
  }

  eventAt(px, py) {
    const row = Math.floor((py + this.port.y - this.top) / this.laneHeight);
    const found = py > AXIS ? this.picture.rows[row] : undefined;
    return found ? this.picture.scene.span_first[found.span] : -1;
  }

  lineAt() {
    return null;
  }
}

// A colour for each number, with hues of consecutive numbers far apart.
function hue(number, dark) {
  const angle = (number * 137.5 + 210) % 360;
  return `hsl(${angle} ${dark ? 45 : 52}% ${dark ? 62 : 52}%)`;
}
