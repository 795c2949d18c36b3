'use strict';

/** An element with a class and children; strings become text, never markup. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Write a text where it differs; whether it did. */
function setText(element, text) {
  if (element.textContent === String(text)) return false;
  element.textContent = text;
  return true;
}

/** A figure as people write it. */
function figure(number) {
  return Number(number ?? 0).toLocaleString();
}

/** A time of day. */
function timeOf(date) {
  return date.toLocaleTimeString();
}

/** Show the parts of a bar as shares of all devices. */
function fillBar(bar, { requested, free, unavailable }) {
  const parts = { requested, free, unavailable };
  for (const [name, devices] of Object.entries(parts)) {
    const part = bar.querySelector(`.${name}`);
    part.style.flexGrow = devices;
    part.hidden = !devices;
  }
}

/** An empty bar. What it shows is said in figures beside it, so nobody has to see it. */
function makeBar() {
  const bar = make('div', 'bar', ...['requested', 'free', 'unavailable'].map((name) => make('span', name)));
  bar.setAttribute('aria-hidden', 'true');
  return bar;
}

/** The nodes of one class with the reason for every device that is not free; asked for while it is open. */
class Nodes {
  static AGAIN_MS = 5000;
  static MOST_ROWS = 200;
  static MOST_SIZES = 8;
  static COLUMNS = ['Node', 'Free', 'Requested', 'Allocatable', 'Capacity', 'Why not free'];

  #url;
  #rows = new Map();
  #all = false;
  #timer;
  #asking = false;
  #again = false;
  #asOf = null;

  /** @param {string} url of the class, without a subresource. */
  constructor(url, name) {
    this.#url = `${url}/catalog`;
    this.element = make('details', 'nodes');
    this.body = make('div', 'detail');
    this.state = make('p', 'muted', 'Asking…');
    this.state.setAttribute('role', 'status');
    this.facts = make('dl', 'facts');
    this.notes = make('ul', 'notes');
    this.table = this.#makeTable(name);
    this.more = make('button', 'more');
    this.more.type = 'button';
    this.more.addEventListener('click', () => this.#showAll());
    this.beside = make('p', 'muted');
    for (const part of [this.notes, this.facts, this.table, this.more, this.beside]) part.hidden = true;
    this.body.append(this.state, this.notes, this.facts, this.table, this.more, this.beside);
    this.element.append(make('summary', '', 'Nodes and reasons', make('span', 'unseen', ` of ${name}`)), this.body);
    this.element.addEventListener('toggle', () => this.#toggled());
    document.addEventListener('visibilitychange', () => this.refresh());
  }

  get open() {
    return this.element.open;
  }

  /** Ask anew, if it is open; the class has changed, or time has passed. */
  async refresh() {
    if (!this.open || document.hidden || !this.element.isConnected) return;
    if (this.#asking) {
      this.#again = true;
      return;
    }
    clearTimeout(this.#timer);
    this.#asking = true;
    try {
      this.#show(await getJson(this.#url));
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#asking = false;
    }
    this.#timer = setTimeout(() => this.refresh(), this.#again ? Nodes.AGAIN_MS / 10 : Nodes.AGAIN_MS);
    this.#again = false;
  }

  #toggled() {
    clearTimeout(this.#timer);
    if (this.open && this.#asOf) this.#outdate('Asking again…');
    this.refresh();
  }

  #makeTable(name) {
    const table = make('table', '', make('caption', 'unseen', `Nodes of ${name}`));
    const head = make('tr', '', ...Nodes.COLUMNS.map((column) => make('th', '', column)));
    for (const cell of head.children) cell.scope = 'col';
    this.rows = make('tbody');
    table.append(make('thead', '', head), this.rows);
    giveRoles(table);
    return table;
  }

  #show(page) {
    this.#asOf = new Date();
    this.element.classList.remove('old');
    this.state.hidden = true;
    const { capacity = {}, placement = [], nodes = [], nodesWithoutResource = 0, notes = [] } = page;
    this.#showFacts(capacity, placement, page.placementTruncated);
    this.notes.replaceChildren(...notes.map((note) => make('li', '', String(note))));
    this.notes.hidden = !notes.length;
    this.#showRows(nodes);
    const others = nodesWithoutResource === 1 ? '1 other node has' : `${figure(nodesWithoutResource)} other nodes have`;
    setText(this.beside, nodes.length ? `${others} no such device.` : 'No node has this device.');
    this.beside.hidden = nodes.length > 0 && !nodesWithoutResource;
  }

  #showFacts(capacity, placement, truncated) {
    const facts = placement.map(({ devices, instances }) => [
      `Instances of ${devices} device${devices === 1 ? '' : 's'}`,
      figure(instances),
    ]);
    if (truncated || facts.length > Nodes.MOST_SIZES) {
      facts.length = Math.min(facts.length, Nodes.MOST_SIZES);
      facts.push(['Larger instances', 'not listed here']);
    }
    if (capacity.pending) facts.push(['Pending devices', figure(capacity.pending)]);
    if (capacity.nominated) facts.push(['Nominated devices', figure(capacity.nominated)]);
    this.facts.hidden = !facts.length;
    const shown = facts.map(([term, value]) => make('div', '', make('dt', '', term), make('dd', '', value)));
    this.facts.replaceChildren(...shown);
  }

  /** Rows stay where they are and change in place, so that nobody loses what is selected or read. */
  #showRows(nodes) {
    const shown = this.#all ? nodes : nodes.slice(0, Nodes.MOST_ROWS);
    const names = new Set(shown.map((node) => node.name));
    for (const [name, row] of this.#rows) {
      if (names.has(name)) continue;
      row.remove();
      this.#rows.delete(name);
    }
    shown.forEach((node, index) => {
      const row = this.#rows.get(node.name) ?? this.#makeRow(node.name);
      if (this.rows.children[index] !== row) this.rows.insertBefore(row, this.rows.children[index] ?? null);
      fillRow(row, node);
    });
    this.table.hidden = !shown.length;
    this.more.hidden = shown.length === nodes.length;
    setText(this.more, `Show all ${figure(nodes.length)} nodes`);
  }

  #makeRow(name) {
    const head = make('th', '', make('span', '', name), make('span', 'muted left-out', ' left out'), makeBar());
    head.scope = 'row';
    const row = make('tr', '', head, ...Nodes.COLUMNS.slice(1).map(() => make('td')));
    Nodes.COLUMNS.forEach((column, index) => (row.children[index].dataset.column = column));
    giveRoles(row);
    this.#rows.set(name, row);
    return row;
  }

  #showAll() {
    this.#all = true;
    this.element.querySelector('summary').focus();
    this.refresh();
  }

  #fail(problem) {
    this.#outdate(this.#asOf ? `Not live, as of ${timeOf(this.#asOf)}: ${problem.message}` : problem.message);
  }

  #outdate(text) {
    this.element.classList.add('old');
    this.state.hidden = false;
    setText(this.state, text);
  }
}

/** The figures and reasons of one node. */
function fillRow(row, node) {
  const cells = [...row.children].slice(1);
  [node.free, node.requested, node.allocatable, node.capacity].forEach((number, index) => {
    setText(cells[index], figure(number));
  });
  row.querySelector('.left-out').hidden = Boolean(node.eligible);
  fillBar(row.querySelector('.bar'), barOfNode(node));
  const isFull = node.eligible && !node.free && node.allocatable > 0;
  const reasons = [...(node.reasons ?? []), ...(isFull ? [{ reason: 'InUse', message: 'Pods hold all of them.' }] : [])];
  const said = JSON.stringify(reasons);
  const cell = cells[4];
  if (row.dataset.said === said) return;
  row.dataset.said = said;
  const items = reasons.map(({ reason, message }) =>
    make('li', '', make('b', '', String(reason)), ' ', make('span', '', ...breakable(String(message)))),
  );
  cell.replaceChildren(...(items.length ? [make('ul', '', ...items)] : []));
}

/** A text that may be broken where a name has a mark, rather than anywhere. */
function breakable(text) {
  return text.split(/(?<=[/:=])/).flatMap((piece) => [piece, make('wbr')]);
}

/** The parts of a node's bar: of one that is left out nothing can be had. */
function barOfNode({ eligible, requested, free, allocatable, capacity }) {
  const offered = eligible ? allocatable : 0;
  return { requested: Math.min(requested, offered), free, unavailable: Math.max(0, capacity - offered) };
}

/** A table that is laid out as blocks on a narrow screen would no longer be one to a screen reader. */
function giveRoles(element) {
  const roles = { TABLE: 'table', THEAD: 'rowgroup', TBODY: 'rowgroup', TR: 'row', TD: 'cell' };
  for (const each of [element, ...element.querySelectorAll('*')]) {
    const role = each.tagName === 'TH' ? (each.scope === 'row' ? 'rowheader' : 'columnheader') : roles[each.tagName];
    if (role) each.setAttribute('role', role);
  }
}
