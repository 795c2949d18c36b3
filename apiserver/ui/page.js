'use strict';

const COLLECTION = '/apis/catalog.cozystack.io/v1alpha1/gpuclasses';
const NEWS_MS = 1000;
const MOST_NEWS = 3;

/** What the page is put together from, by the names in its markup. */
const part = Object.fromEntries(
  [...document.querySelectorAll('[data-part]')].map((element) => [element.dataset.part, element]),
);
/** The file that is served, or "" for a cluster that is followed. */
const file = document.documentElement.dataset.file ?? '';
const cards = new Map();
const news = [];
let newsTimer;
let wanted = location.hash;
let isDue = false;
let fileProblem = '';

/** Show what is known before the next picture, however much has changed until then. */
function showSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    show();
  });
}

function show() {
  showState();
  if (!follower.listed) return;
  for (const [name, card] of cards) {
    if (follower.items.has(name)) continue;
    if (card.element.contains(document.activeElement)) part.main.focus({ preventScroll: true });
    card.element.remove();
    cards.delete(name);
    tell(`${name} is gone`);
  }
  const isFirst = !cards.size;
  for (const name of [...follower.items.keys()].sort()) {
    const known = cards.get(name);
    const card = known ?? addCard(name);
    const change = card.shown === follower.items.get(name) ? '' : card.update(follower.items.get(name));
    card.shown = follower.items.get(name);
    if (!isFirst) tell(known ? change : `${name} is new`);
  }
  filter();
  if (wanted) seek();
}

/** A class that was not there: put where its name belongs, and nothing else moves. */
function addCard(name) {
  const card = new Card(name, `${COLLECTION}/${encodeURIComponent(name)}`);
  const next = [...cards.keys()].filter((other) => other > name).sort()[0];
  part.list.insertBefore(card.element, next === undefined ? null : cards.get(next).element);
  cards.set(name, card);
  return card;
}

function showState() {
  const { live, problem, provenAt, listed } = follower;
  const state = live ? (file ? 'file' : 'live') : problem && problem.kind !== 'paused' ? 'old' : 'connecting';
  const before = document.body.dataset.state;
  if (before !== state) {
    if (before === 'old' && live) tell('Live again');
    document.body.dataset.state = state;
    setText(part['state-text'], { live: 'Live', file: 'From a file', old: 'Not live', connecting: 'Connecting…' }[state]);
  }
  const asOf = listed && provenAt ? ` What is shown is as of ${timeOf(provenAt)}.` : '';
  const advice = /gpuclasses \(404/.test(problem?.message) ? ' Add the kind: kubectl apply -k manifests/crd.' : '';
  const text = state === 'old' ? `${ended(problem.message)}${advice}${asOf} Trying again.` : fileProblem;
  part.banner.hidden = !text;
  setText(part.banner, text);
}

/** Ask whether the file can still be read: when not, what was read before goes on being served. */
async function checkFile() {
  try {
    const answer = await fetch('/readyz/snapshot', { signal: AbortSignal.timeout(ANSWER_MS), cache: 'no-store' });
    fileProblem = answer.status === 500 ? `${ended((await answer.text()).trim())} What is shown was read before.` : '';
  } catch {
    fileProblem = ''; // that nobody answers is said already
  }
  showSoon();
}

/** A sentence with its full stop. */
function ended(text) {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function filter() {
  const words = part.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const card of cards.values()) {
    card.element.hidden = !card.matches(words);
    shown += !card.element.hidden;
  }
  part.tools.hidden = !cards.size;
  const classes = `${figure(cards.size)} ${cards.size === 1 ? 'class' : 'classes'}`;
  setText(part.count, words.length ? `${figure(shown)} of ${classes}` : classes);
  showEmpty(shown, words.length > 0);
}

function showEmpty(shown, isFiltered) {
  const state = shown ? '' : isFiltered ? 'filtered' : 'empty';
  if (part.empty.dataset.state === state) return;
  part.empty.dataset.state = state;
  part.empty.hidden = !state;
  if (state === 'filtered') {
    const clear = make('button', '', 'Show all classes');
    clear.type = 'button';
    clear.addEventListener('click', clearFilter);
    part.empty.replaceChildren(make('h2', '', 'No class matches'), clear);
  } else if (state === 'empty') {
    part.empty.replaceChildren(make('h2', '', 'There are no GPU classes'), ...adviceWhenEmpty());
  }
}

function adviceWhenEmpty() {
  if (file) {
    const command = 'kubectl get gpuclasses.cozystack.io,nodes,pods,namespaces,resourcequotas -A -o yaml';
    return [make('p', '', 'The file holds none. This writes one that holds what is needed:'), make('pre', '', command)];
  }
  return [
    make('p', '', 'The cluster stores no GPUClass. These commands add the kind and three examples to be edited:'),
    make('pre', '', 'kubectl apply -k manifests/crd\nkubectl apply -k manifests/examples'),
    make('p', 'muted', 'A class shows up here as soon as it is stored.'),
  ];
}

function clearFilter() {
  part.filter.value = '';
  filter();
  part.filter.focus();
}

/** Go to the class that the address names, once it is there. */
function seek() {
  const card = cards.get(nameIn(wanted));
  if (!card) return;
  wanted = '';
  if (card.element.hidden) clearFilter();
  card.target();
}

function nameIn(hash) {
  try {
    return decodeURIComponent(hash.slice(1));
  } catch {
    return '';
  }
}

/** Say what changed to who cannot see it, a little later and no more than can be listened to. */
function tell(change) {
  if (!change) return;
  news.push(change);
  newsTimer ??= setTimeout(() => {
    const text = news.length > MOST_NEWS ? `${news.length} changes` : news.join('. ');
    news.length = 0;
    newsTimer = undefined;
    part.news.replaceChildren(make('p', '', text));
  }, NEWS_MS);
}

part.source.textContent = file ? `from ${file}` : 'from your cluster';
part.filter.addEventListener('input', filter);
part.skip.addEventListener('click', (event) => {
  event.preventDefault();
  part.main.focus();
});
window.addEventListener('hashchange', () => {
  wanted = location.hash;
  seek();
});

if (file) setInterval(checkFile, Follower.CHECK_MS);
const follower = new Follower(COLLECTION, showSoon);
follower.run();
