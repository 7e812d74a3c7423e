// The overview: the whole picture in a strip below it, with the part in view marked.

class Overview extends Served {
  drawOverview() {
    const box = this.overview.getBoundingClientRect(),
      ratio = this.painter.ratio;
    const [wide, high] = [
      Math.max(1, Math.round(box.width * ratio)),
      Math.max(1, Math.round(box.height * ratio)),
    ];
    this.overview.width = wide;
    this.overview.height = high;
    const sheet = document.createElement("canvas");
    sheet.width = wide;
    sheet.height = high;
    const g = sheet.getContext("2d");
    const columns = Math.max(1, Math.floor(wide / (2 * ratio)));
    const byLevels = this.view === "space" && this.axis === "logical" && !this.quiet;
    const counts =
      this.scene.window && byLevels ? overviewCounts(this.scene, columns) : this.picture.histogram(columns);
    const most = counts.reduce((a, b) => Math.max(a, b), 1);
    g.fillStyle = this.painter.colour.message;
    counts.forEach((value, column) => {
      const tall = value ? Math.max(2 * ratio, Math.sqrt(value / most) * (high - 6 * ratio)) : 0;
      g.fillRect(column * 2 * ratio, high - tall, 1.6 * ratio, tall);
    });
    if (this.found && byLevels) {
      g.fillStyle = this.painter.colour.future;
      const { columns: marks } = this.found;
      marks.forEach((many, at) => {
        if (many) g.fillRect((at * wide) / marks.length, high - 5 * ratio, 2 * ratio, 5 * ratio);
      });
    }
    g.fillStyle = this.painter.colour.fault;
    for (const fault of this.scene.faults) {
      const x = byLevels ? fault.levels[1] : this.picture.x ? this.picture.x[fault.events[0]] : NaN;
      g.fillRect(
        ((x - this.picture.start) / (this.picture.end - this.picture.start)) * wide - ratio,
        0,
        2 * ratio,
        5 * ratio,
      );
    }
    this.sheet = sheet;
  }

  markOverview() {
    if (!this.sheet) return;
    const g = this.overview.getContext("2d"),
      wide = this.overview.width,
      high = this.overview.height;
    const scale = wide / (this.picture.end - this.picture.start);
    g.clearRect(0, 0, wide, high);
    g.drawImage(this.sheet, 0, 0);
    const from = (this.port.x - this.picture.start) * scale,
      width = Math.max(3, (this.room / this.port.k) * scale);
    g.fillStyle = this.painter.colour.past;
    g.globalAlpha = 0.16;
    g.fillRect(from, 0, width, high);
    g.globalAlpha = 1;
    g.strokeStyle = this.painter.colour.past;
    g.lineWidth = this.painter.ratio;
    g.strokeRect(from, 0.5, width, high - 1);
  }
}

function overviewCounts(scene, columns) {
  const counts = new Float64Array(columns),
    width = 1024;
  scene.overview.forEach((value, at) => {
    counts[Math.floor(((at % width) * columns) / width)] += value;
  });
  return counts;
}
