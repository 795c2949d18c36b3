'use strict';

/** One class: what is free of it as a figure and a bar, why it is not offered, and its nodes. */
class Card {
  static FIGURES = [
    ['requested', 'Requested'],
    ['free', 'Free'],
    ['unavailable', 'Unavailable'],
    ['overcommitted', 'Overcommitted'],
  ];

  #figures = {};
  #words = '';

  /**
   * @param {string} name of the class.
   * @param {string} url of the class.
   */
  constructor(name, url) {
    this.name = name;
    this.link = make('a', '', name);
    this.link.href = `#${encodeURIComponent(name)}`;
    this.heading = make('h2', '', this.link);
    this.terms = make('p', 'terms');
    this.left = make('span', 'left');
    this.unit = make('span', 'unit');
    this.most = make('span', 'most');
    this.bar = makeBar();
    this.legend = make('dl', 'legend', ...Card.FIGURES.map(([key, label]) => this.#makeFigure(key, label)));
    this.reason = make('b');
    this.message = make('span');
    this.verdict = make('p', 'verdict', this.reason, this.message);
    this.nodes = new Nodes(url, name);
    this.element = make(
      'li',
      'class',
      make('div', 'title', this.heading, this.terms),
      make('p', 'headline', this.left, ' ', this.unit, ' ', this.most),
      make('div', 'figures', this.bar, this.legend),
      this.verdict,
      this.nodes.element,
    );
  }

  /** Show an object; what changed, in words for who cannot see it, or "". */
  update({ spec = {}, status = {} }) {
    const { requested = 0, overcommitted = 0, free = 0, unavailable = 0, offered = false } = status;
    setText(this.terms, termsOf(spec));
    this.element.classList.toggle('not-offered', !offered);
    this.element.classList.toggle('none-left', offered && !free);
    const changed = setText(this.left, offered ? figure(free) : 'Not offered');
    setText(this.unit, offered ? `of ${figure(status.allocatable)} free` : '');
    setText(this.most, this.#most(status));
    fillBar(this.bar, { requested: requested - overcommitted, free, unavailable });
    for (const [key] of Card.FIGURES) setText(this.#figures[key], figure(status[key]));
    this.#figures.overcommitted.parentElement.hidden = !overcommitted;
    setText(this.reason, offered ? '' : `${status.reason}: `);
    const message = status.message ?? '';
    setText(this.message, message);
    this.verdict.hidden = message === `${free} of ${status.allocatable} allocatable devices are free.`; // said above
    this.#words = [this.name, spec.vendor, spec.model, spec.mode, spec.profile, status.reason].join(' ').toLowerCase();
    this.nodes.refresh();
    if (!changed) return '';
    this.#glow();
    return `${this.name}: ${offered ? `${figure(free)} free` : `not offered, ${status.reason}`}`;
  }

  /** Whether every one of the words is in what the class is called and sold as. */
  matches(words) {
    return words.every((word) => this.#words.includes(word));
  }

  /** Show it and its nodes to who followed a link to it. */
  target() {
    this.nodes.element.open = true;
    this.element.scrollIntoView({ block: 'start' });
    this.link.focus({ preventScroll: true });
  }

  #most({ offered, free, maxPerInstance }) {
    if (!offered || !free) return '';
    return `up to ${figure(maxPerInstance)} in one instance`;
  }

  #makeFigure(key, label) {
    this.#figures[key] = make('dd');
    return make('div', key, make('dt', '', label), this.#figures[key]);
  }

  #glow() {
    this.left.classList.remove('changed');
    requestAnimationFrame(() => requestAnimationFrame(() => this.left.classList.add('changed')));
  }
}

/** What is sold, in one line. */
function termsOf(spec) {
  const mode = { vgpu: 'vGPU', passthrough: 'whole card' }[spec.mode] ?? spec.mode;
  const device = [spec.vendor, spec.model].filter(Boolean).join(' ');
  const most = spec.maxCount ? `at most ${spec.maxCount} per instance` : '';
  const licence = spec.license ? 'licence needed' : '';
  const kind = [mode, spec.profile].filter(Boolean).join(' ');
  return [device, kind, memoryOf(spec.memory), most, licence].filter(Boolean).join(' · ');
}

/** Memory as the class says it, with a space before the unit. */
function memoryOf(memory) {
  return String(memory ?? '').replace(/^(\d+)([A-Z]i?)$/, '$1 $2B');
}
