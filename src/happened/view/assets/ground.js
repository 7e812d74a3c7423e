// The base class of painters: the canvas, its colours, and the conversion of coordinates to pixels.

const AXIS = 30,
  PAD = 10;
const MOST_SHAPES = 4000; // above this number, columns of events are drawn instead of single events
const MOST_LINES = 1000;
const MOST_BENT = 400; // above this number, lines are straight
const BOWS = [0, 5, -5, 10, -10, 16, -16, 24, -24]; // how far aside the middle of a line may be moved, in pixels
const COLUMN = 3; // pixels
const COLOURS =
  "ink paper board dim rule soft lane message past future faint fault held event".split(" ");
const NEUTRAL = 0,
  PAST = 1,
  FUTURE = 2,
  DIM = 3,
  CHOSEN = 4,
  AT_FAULT = 5,
  IN_FLIGHT = 6, // in a story: a copy that arrives at a later step
  LATER = 7; // in a story: not drawn yet

class Ground {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.sprites = new Map();
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(`--${name}`).trim();
    this.colour = Object.fromEntries(COLOURS.map(name => [name, colour(name)]));
    const { event, message, past, future, faint, ink, fault } = this.colour;
    this.classes = [event, past, future, faint, ink, fault];
    this.lines = [message, past, future, faint, ink, fault, message];
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

  // The width of the column of names: that of the longest name, up to a limit.
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
    // If lanes are few for a tall screen, centre them vertically.
    this.top = AXIS + Math.max(PAD, (room - picture.lanes.length * this.laneHeight) / 2);
  }

  y(lane) {
    return this.top + (lane + 0.5) * this.laneHeight - this.port.y;
  }

  sx(x) {
    return this.left + (x - this.port.x) * this.port.k;
  }

  place(i) {
    return [this.sx(this.picture.x[i]), this.y(this.picture.laneOf[this.picture.scene.process[i]])];
  }

  get radius() {
    return Math.max(
      2.2,
      Math.min(5, this.laneHeight / 5, Math.max(2.2, this.port.k * this.picture.unit * 0.3)),
    );
  }

  // A shape drawn once: copying it is faster than drawing it again for every event.
  sprite(kind, colour) {
    const r = Math.round(this.radius * 4) / 4,
      key = `${kind} ${colour} ${r} ${this.ratio}`;
    if (!this.sprites.has(key)) {
      const sheet = document.createElement("canvas"),
        half = Math.ceil(r * 1.3) + 2;
      sheet.width = sheet.height = 2 * half * this.ratio;
      drawShape(sheet.getContext("2d"), kind, half, r, this.ratio, colour, this.colour.board);
      if (this.sprites.size > 500) this.sprites.clear();
      this.sprites.set(key, sheet);
    }
    return this.sprites.get(key);
  }

  // Draw shapes: sends are discs, arrivals rings, deliveries diamonds, internal events small squares.
  shapes(events, kind, colour) {
    const sprite = this.sprite(kind, colour),
      half = sprite.width / this.ratio / 2;
    for (const i of events) {
      const [x, y] = this.place(i);
      this.context.drawImage(sprite, x - half, y - half, 2 * half, 2 * half);
    }
  }

  // The text on one line, cut to this width; "" if fewer than three letters fit.
  fitted(text, width) {
    const { context: g } = this;
    let line = text.slice(0, 80).replace(/\s+/g, " ");
    if (g.measureText(line).width <= width) return line;
    while (line.length > 3 && g.measureText(`${line}…`).width > width) {
      line = [...line].slice(0, -Math.max(1, line.length >> 3)).join("");
    }
    return line.length >= 3 && g.measureText(`${line}…`).width <= width ? `${line}…` : "";
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
}
