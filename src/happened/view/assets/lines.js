// Lines for messages and causes: which are drawn, where they bend, and which one is at a point.

class Lines extends Ground {
  paintEdges() {
    const { picture } = this,
      { from, to } = picture.edges,
      x = picture.x;
    const seen = [];
    // Where several levels share a pixel, all lines would be vertical and show nothing.
    const drawn = this.port.k * picture.unit < 0.2 ? 0 : from.length;
    for (let k = 0; k < drawn; k++) {
      // Hidden events have the coordinate NaN, which makes both comparisons false.
      if (x[from[k]] <= this.to && x[to[k]] >= this.from) seen.push(k);
      else if (x[to[k]] <= this.to && x[from[k]] >= this.from) seen.push(k);
    }
    this.linesInView = seen.length;
    const chosen = seen.length > MOST_LINES ? this.thinned(seen) : seen;
    this.bows = new Map(); // of this picture; each line's bow is needed several times
    const batches = [...this.lines, LATER].map(() => []);
    for (const k of chosen) batches[this.edgeClass(from[k], to[k])].push(k);
    this.linesShown = batches.slice(0, IN_FLIGHT).flat();
    for (const kind of [IN_FLIGHT, DIM, NEUTRAL, PAST, FUTURE, CHOSEN, AT_FAULT])
      this.strokeEdges(batches[kind], kind, seen.length);
    if (seen.length <= MOST_LINES) this.paintLost();
  }

  // Thin out very many lines: keep one per pair of lanes and stretch of some pixels.
  thinned(seen) {
    const { picture } = this,
      { from, to } = picture.edges,
      { scene } = picture;
    const width = this.width / 60,
      kept = new Map();
    const lanes = picture.lanes.length;
    const [first, last] = this.lanesShown,
      chosen = Boolean(this.marks.pastOf);
    for (const k of seen) {
      const a = picture.laneOf[scene.process[from[k]]],
        b = picture.laneOf[scene.process[to[k]]];
      if (Math.max(a, b) < first || Math.min(a, b) >= last) continue;
      const key = (Math.floor(this.sx(picture.x[from[k]]) / width) * lanes + a) * lanes + b;
      // Highlighted lines take precedence over others.
      if (!kept.has(key)) kept.set(key, k);
      else if (
        chosen &&
        this.edgeClass(from[k], to[k]) !== DIM &&
        this.edgeClass(from[kept.get(key)], to[kept.get(key)]) === DIM
      )
        kept.set(key, k);
    }
    const all = [...kept.values()],
      step = Math.ceil(all.length / MOST_LINES);
    return step > 1
      ? all.filter((k, n) => n % step === 0 || (chosen && this.edgeClass(from[k], to[k]) !== DIM))
      : all;
  }

  edgeClass(i, j) {
    const a = this.marks.classOf(i),
      b = this.marks.classOf(j);
    if (a === LATER) return LATER;
    if (b === LATER) return IN_FLIGHT;
    if (this.marks.fault >= 0) return DIM;
    if (this.marks.story && this.marks.faulty.has(j)) return AT_FAULT;
    if (a === NEUTRAL && b === NEUTRAL) return NEUTRAL;
    if ((a === PAST || a === CHOSEN) && (b === PAST || b === CHOSEN)) return PAST;
    if ((a === FUTURE || a === CHOSEN) && (b === FUTURE || b === CHOSEN)) return FUTURE;
    return DIM;
  }

  strokeEdges(batch, kind, inView) {
    if (!batch.length) return;
    const { context: g } = this,
      { from, to } = this.picture.edges;
    const crowded = inView > MOST_LINES;
    g.globalAlpha = crowded ? 0.5 : 1;
    g.strokeStyle = g.fillStyle = this.lines[kind];
    // Lines one pixel wide are drawn many times faster than wider ones, and wider lines much faster one by
    // one than as one path.
    g.lineWidth = crowded || batch.length > 300 || kind === NEUTRAL || kind === DIM ? 1 : 1.6;
    if (kind === IN_FLIGHT) g.setLineDash([3, 5]);
    for (const k of batch) {
      g.beginPath();
      this.line(g, from[k], to[k]);
      g.stroke();
    }
    g.setLineDash([]);
    if (!crowded && kind !== DIM && kind !== IN_FLIGHT) {
      for (const k of batch) {
        g.beginPath();
        this.head(g, from[k], to[k], 6);
        g.fill();
      }
    }
    g.globalAlpha = 1;
  }

  // Draw a straight line, or one bow if the line would cross an event that is not its end, or an arc above
  // the lane if both ends are on one lane.
  line(g, i, j) {
    const [ax, ay] = this.place(i),
      [bx, by] = this.place(j),
      [x, y] = this.control(i, j);
    g.moveTo(ax, ay);
    if (this.isStraight(i, j)) g.lineTo(bx, by);
    else g.quadraticCurveTo(x, y, bx, by);
  }

  isStraight(i, j) {
    const [x, y] = this.control(i, j),
      [ax, ay] = this.place(i),
      [bx, by] = this.place(j);
    return x === (ax + bx) / 2 && y === (ay + by) / 2;
  }

  // The control point of the curve between two events: their middle, moved aside by twice the curve's own
  // shift.
  control(i, j) {
    const [ax, ay] = this.place(i),
      [bx, by] = this.place(j),
      x = (ax + bx) / 2;
    if (ay === by) {
      const height = Math.min(this.laneHeight * 0.7, 8 + Math.abs(bx - ax) / 6);
      return [x, Math.abs(i - j) > 1 ? ay - height : ay];
    }
    return [x + (2 * this.bow(i, j)) / steepness(ax - bx, ay - by), (ay + by) / 2];
  }

  // How far a line is moved aside: the least that avoids all events on the lanes that it crosses or, if they
  // stand too close, the shift with the greatest distance from the nearest. One bow only: a detour around
  // each event would make the line wriggle.
  bow(i, j) {
    if (this.linesInView > MOST_BENT || this.laneHeight < 24) return 0;
    const key = i * this.picture.x.length + j;
    if (!this.bows.has(key)) {
      const reach = this.radius + 3;
      let best = 0,
        most = -2;
      for (const aside of BOWS) {
        const room = this.room(i, j, aside, reach);
        if (room > most + 1) [best, most] = [aside, room]; // prefer a wider bow only if it gains a pixel
        if (room >= reach) break;
      }
      this.bows.set(key, best);
    }
    return this.bows.get(key);
  }

  // The approximate distance between a line that is moved aside and the nearest event on the lanes between
  // its ends, at most `reach`.
  room(i, j, aside, reach) {
    const { picture } = this,
      [ax, ay] = this.place(i),
      [bx, by] = this.place(j);
    const [from, to] = [i, j].map(e => picture.laneOf[picture.scene.process[e]]),
      side = Math.sign(to - from),
      steep = steepness(ax - bx, ay - by),
      wide = reach / steep / this.port.k;
    let least = reach;
    for (let lane = from + side; side && lane !== to; lane += side) {
      const share = (this.y(lane) - ay) / (by - ay),
        x = ax + share * (bx - ax) + (4 * share * (1 - share) * aside) / steep,
        at = this.port.x + (x - this.left) / this.port.k;
      for (const p of picture.lanes[lane].members) {
        const [first, end] = picture.stretch(p, at - wide, at + wide);
        if (end - first > 8) continue; // a dense group: there is no way around it
        for (let e = first; e < end; e++) {
          const apart = Math.abs(x - this.sx(picture.x[e])) * steep;
          if (apart < least) least = apart; // false for hidden events, which are at NaN
        }
      }
    }
    return least;
  }

  head(g, i, j, size) {
    const [bx, by] = this.place(j),
      [x, y] = this.control(i, j);
    let dx = bx - x,
      dy = by - y;
    const length = Math.hypot(dx, dy) || 1;
    if (length < size * 1.25) return;
    dx /= length;
    dy /= length;
    const tipX = bx - dx * 5,
      tipY = by - dy * 5;
    const baseX = tipX - dx * size,
      baseY = tipY - dy * size,
      side = size * 0.45;
    g.moveTo(tipX, tipY);
    g.lineTo(baseX - dy * side, baseY + dx * side);
    g.lineTo(baseX + dy * side, baseY - dx * side);
    g.closePath();
  }

  // Draw a message that never arrived: a short line towards its destination that ends in a cross.
  paintLost() {
    const { context: g, scene, picture } = this;
    if (picture.view !== "space") return;
    g.strokeStyle = this.colour.fault;
    g.lineWidth = 1.2;
    g.setLineDash([3, 3]);
    const ends = [];
    g.beginPath();
    for (let k = 0; k < scene.lost_send.length && ends.length < MOST_LINES; k++) {
      const send = scene.lost_send[k],
        lane = picture.laneOf[scene.lost_dest[k]];
      if (lane < 0 || !(picture.x[send] >= this.from && picture.x[send] <= this.to)) continue;
      const [x, y] = this.place(send),
        dy = this.y(lane) - y || -this.laneHeight;
      const dx = Math.min(26, Math.abs(dy) * 0.4),
        length = Math.min(0.7, 40 / Math.abs(dy));
      g.moveTo(x, y);
      g.lineTo(x + dx * length, y + dy * length);
      ends.push([x + dx * length, y + dy * length]);
    }
    g.stroke();
    g.setLineDash([]);
    g.beginPath();
    for (const [x, y] of ends) {
      g.moveTo(x - 3, y - 3);
      g.lineTo(x + 3, y + 3);
      g.moveTo(x - 3, y + 3);
      g.lineTo(x + 3, y - 3);
    }
    g.stroke();
  }

  // The line at a point, as [from, to]; null if there is none or lines are too many to distinguish.
  lineAt(px, py) {
    if (!this.linesShown || this.linesInView > MOST_LINES || px < this.left || py < AXIS) return null;
    const { from, to } = this.picture.edges;
    let best = null,
      least = 5;
    for (const k of this.linesShown) {
      const distance = this.distance(from[k], to[k], px, py);
      if (distance < least) {
        least = distance;
        best = [from[k], to[k]];
      }
    }
    return best;
  }

  // Points on the line between two events, close enough that the chords between them approximate it.
  points(i, j, chords = this.isStraight(i, j) ? 1 : 8) {
    const [ax, ay] = this.place(i),
      [bx, by] = this.place(j),
      [cx, cy] = this.control(i, j);
    return Array.from({ length: chords + 1 }, (_, n) => {
      const t = n / chords,
        at = (a, c, b) => (1 - t) ** 2 * a + 2 * t * (1 - t) * c + t ** 2 * b;
      return [at(ax, cx, bx), at(ay, cy, by)];
    });
  }

  // The distance from a point to the line between two events.
  distance(i, j, px, py) {
    const points = this.points(i, j);
    let least = Infinity;
    for (let n = 1; n < points.length; n++) {
      const [[x, y], [nextX, nextY]] = [points[n - 1], points[n]];
      least = Math.min(least, fromChord(px - x, py - y, nextX - x, nextY - y));
    }
    return least;
  }

  // Whether a line runs through the box of a label.
  strikes(k, middle, top, width) {
    const { from, to } = this.picture.edges,
      [ax, ay] = this.place(from[k]),
      [bx, by] = this.place(to[k]),
      [left, right] = [middle - width / 2, middle + width / 2];
    if (Math.max(ax, bx) < left || Math.min(ax, bx) > right) return false;
    if (Math.max(ay, by) < top - this.laneHeight || Math.min(ay, by) > top + this.laneHeight) return false;
    return this.points(from[k], to[k], 40).some(
      ([x, y]) => x > left && x < right && y > top && y < top + LABEL_HEIGHT,
    );
  }
}

// The ratio of the distance from a line to the horizontal distance from it, for a line of this slope.
function steepness(dx, dy) {
  return Math.max(0.2, Math.abs(dy) / (Math.hypot(dx, dy) || 1));
}

// The distance from a point to the segment between the origin and (dx, dy).
function fromChord(px, py, dx, dy) {
  const along = Math.max(0, Math.min(1, (px * dx + py * dy) / (dx ** 2 + dy ** 2 || 1)));
  return Math.hypot(along * dx - px, along * dy - py);
}
