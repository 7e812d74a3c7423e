// Requests of the application to a server that shows a large or growing trace, window by window.

class Served {
  // Load the window in view if it is not loaded, once the viewport has been still for a moment.
  follow() {
    if (this.view !== "space" || this.axis !== "logical" || this.quiet) return;
    const from = this.port.x,
      to = from + this.room / this.port.k,
      [low, high] = this.scene.window;
    const first = Math.max(1, from),
      last = Math.min(this.scene.depth, to),
      middle = (first + last) / 2;
    const inside = first >= low - 1 && last <= high + 1;
    // If more is in view than a window can hold, load only the window around its middle, or around the events
    // last brought into view, until the viewport moves.
    const near = Math.abs(middle - (low + high) / 2) < (high - low) / 2;
    const wide = last - first > (high - low) * 0.8 && (near || this.isAsRevealed);
    clearTimeout(this.asking);
    if (inside || wide || this.loading) return; // after loading, the scene is drawn and this is called again
    this.asking = setTimeout(() => this.loadWindow(first, last), 150);
  }

  get isAsRevealed() {
    return this.revealed !== null && this.revealed.x === this.port.x && this.revealed.k === this.port.k;
  }

  loadWindow(from, to) {
    return this.load(() => loadScene(this.about, this.computation, [from, to]));
  }

  // Load a window with these levels in its middle. The server cuts a window with too many events down to its
  // middle, so the margins on both sides must be equal.
  loadAround(first, last = first) {
    const more = Math.max(2, Math.min(50, first - 1, this.scene.depth - last));
    return this.loadWindow(first - more, last + more);
  }

  // Ask the server about relations that depend on events that are not loaded.
  async askAbout(events) {
    const names = events.map(i => this.scene.name(i));
    const asked = new URLSearchParams({ computation: String(this.computation) });
    try {
      if (names.length === 1) {
        asked.set("event", names[0]);
        this.told = { event: names[0], ...(await askJson(this.about, `reach?${asked}`)) };
      } else if (!this.path && this.relation !== "concurrent") {
        const [first, last] = this.relation === "before" ? names : [names[1], names[0]];
        asked.set("first", first);
        asked.set("last", last);
        this.far = { names: names.join(" "), path: await askJson(this.about, `path?${asked}`) };
      } else return;
    } catch (error) {
      $("notice").textContent = `The server did not answer: ${error.message}`;
    }
    if (names.join(" ") === this.chosenNames.join(" ")) {
      this.panels.update();
      this.describe();
    }
  }

  // If several requests are pending, only the answer to the last one is shown, in whatever order answers
  // arrive.
  async load(get) {
    clearTimeout(this.asking);
    const mine = (this.loading = {});
    try {
      const answer = await get();
      if (mine !== this.loading) return;
      this.loading = null;
      await this.take(answer);
      this.rebuild();
    } catch (error) {
      if (mine === this.loading) this.loading = null;
      $("live").textContent = $("notice").textContent = `The server did not answer: ${error.message}`;
    }
  }

  // Search the whole trace on the server after typing has stopped: a window has only some of the events.
  findEverywhere() {
    const { query } = this;
    if (this.found && this.found.query === query) return;
    this.found = null;
    clearTimeout(this.finding);
    if (!query.trim()) return;
    this.finding = setTimeout(async () => {
      const asked = new URLSearchParams({ computation: String(this.computation), find: query });
      try {
        const found = await askJson(this.about, `find?${asked}`);
        if (query !== this.query) return;
        this.found = { query, at: -1, ...found };
        $("live").textContent = `${count(found.count, "matching event")} in the whole trace.`;
        this.drawOverview();
        this.panels.update();
        this.changed();
      } catch (error) {
        $("notice").textContent = `The server did not answer: ${error.message}`;
      }
    }, 250);
  }

  // Go to a match that may be outside the loaded window.
  async goTo(at) {
    const { found } = this,
      { event, level } = found.events[at];
    found.at = at;
    if (this.scene.find(event) < 0) await this.loadAround(level);
    this.matchAt = this.scene.find(event);
    if (this.matchAt >= 0) {
      this.reveal([this.matchAt]);
      $("live").textContent = `${event}, ${this.scene.deed(this.matchAt)}.`;
    }
    this.panels.update();
  }
}
