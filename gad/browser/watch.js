// The eyes: takes note of the texts that come and go between two looks, such as toasts.
//
// Elements that change are looked at in every frame that is drawn until all of them shows or nothing more comes of it,
// since a text may fade in long after it was put into the document.

const MOST_KEPT = 20;          // texts
const LONGEST_KEPT = 200;      // characters of each
const MOST_CHANGED = 200;      // elements that are looked at
const MOST_TEXTS = 300;        // texts in each of them
const MOST_KNOWN = 20_000;     // texts that are known to have been there before
const LOOKED_AT = 3000;        // milliseconds while some of an element is hidden
const SETTLED = 100;           // milliseconds while all of it shows
const LIVE = ':is([aria-live], [role=status], [role=alert], [role=log])';
const OBSERVED = { subtree: true, childList: true, characterData: true, attributes: true };

let watching = null;

const canBeSeen = (element) => {
  if (!visibleNow(element, SEEN)) return false;
  const rect = box(element);
  return rect.width > 1 && rect.height > 1 && rect.bottom > 0 && rect.right > 0;
};

const innerTextOf = (element) => fold(isHtml(element) ? innerText(element) : textContent(element));

/** The texts in a node, those in shadow roots included. */
const textsIn = (node, most, found = []) => {
  if (nodeType(node) === 1 && SKIPPED.has(localName(node))) return found;
  const walker = newWalker(document, node, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (each) =>
    nodeType(each) === 1 && SKIPPED.has(localName(each)) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  for (let at = walker.currentNode; at && found.length < most; at = walker.nextNode()) {
    const type = nodeType(at);
    if (type === 3 && NOT_BLANK.test(dataOf(at)) && above(at)) found.push(at);
    else if (type === 1 && openShadow(at)) textsIn(openShadow(at), most, found);
  }
  return found;
};

/** The block that an element stands in, unless it holds more than a message. */
const blockOf = (element) => {
  let at = element;
  while (isHtml(at) && /^(inline|contents)$/.test(styleOf(at).display)) {
    const parent = above(at);
    if (!parent || innerTextOf(parent).length > LONGEST_KEPT) break;
    at = parent;
  }
  return at;
};

const keep = (element, whole) => {
  const { kept } = watching;
  const text = short(whole, LONGEST_KEPT);
  if (!text || kept.some((each) => each.text === text)) return;
  const before = kept.filter((each) => each.element.deref() === element);
  // A clock or a counter changes all the time; only its last texts matter.
  if (before.length >= 2 && !matches(element, `${LIVE}, ${LIVE} *`)) before.at(-1).text = text;
  else if (kept.length < MOST_KEPT) kept.push({ element: new WeakRef(element), text });
};

/** Keep what can now be read in a node that changed. Returns whether it is gone, shown, or hidden in part. */
const inspect = (node) => {
  if (!isConnected(node)) return 'gone';
  const texts = textsIn(node, MOST_TEXTS);
  const seen = texts.filter((text) => canBeSeen(above(text)));
  const fresh = seen.filter((text) => watching.known.get(text) !== dataOf(text));
  for (const text of fresh) watching.known.set(text, dataOf(text));
  if (fresh.length) {
    const whole = nodeType(node) === 1 && isHtml(node) && node !== bodyOf(document) && fresh.length === seen.length &&
      innerTextOf(node);
    if (whole && whole.length <= LONGEST_KEPT) keep(node, whole);
    else for (const block of new Set(fresh.map((text) => blockOf(above(text))))) keep(block, innerTextOf(block));
  }
  return seen.length < texts.length ? 'hidden' : 'shown';
};

const onFrame = () => {
  if (!watching) return;
  const now = performance.now();
  for (const [node, since] of watching.changing) {
    const found = inspect(node);
    if (found === 'gone' || now - since > (found === 'shown' ? SETTLED : LOOKED_AT)) watching.changing.delete(node);
  }
  watching.ticking = watching.changing.size > 0;
  if (watching.ticking) requestAnimationFrame(onFrame);
};

const noticed = (records) => {
  if (!watching || !records.length) return;
  const now = watching.changed = performance.now();
  const changed = new Set();
  for (const { type, target, addedNodes } of records) {
    if (type !== 'childList') changed.add(target === documentElement(document) && bodyOf(document) || target);
    for (const node of addedNodes) {
      if (nodeType(node) === 1) observeShadows(node);
      if (nodeType(node) === 1 || nodeType(node) === 3) changed.add(node);
    }
  }
  for (const node of changed) {
    if (watching.changing.size >= MOST_CHANGED && !watching.changing.has(node)) continue;
    watching.changing.set(node, now);
    inspect(node);
  }
  if (!watching.ticking && watching.changing.size) {
    watching.ticking = true;
    requestAnimationFrame(onFrame);
  }
};

const observeShadows = (node) => {
  for (const element of [node, ...findAll(node, '*')]) {
    const shadow = openShadow(element);
    if (!shadow) continue;
    watching.observer.observe(shadow, OBSERVED);
    for (let child = shadow.firstElementChild; child; child = nextElement(child)) observeShadows(child);
  }
};

const watch = () => {
  if (watching) watching.observer.disconnect();
  watching = {
    observer: new MutationObserver(noticed), changed: performance.now(), ticking: false,
    changing: new Map(),    // node: when it changed
    kept: [],               // {element, text}
    known: new WeakMap(),   // text node: what it said when it was last seen
  };
  watching.observer.observe(document, OBSERVED);
  const html = documentElement(document);
  if (!html) return true;
  observeShadows(html);
  for (const text of textsIn(html, MOST_KNOWN)) {
    if (canBeSeen(above(text))) watching.known.set(text, dataOf(text));
  }
  return true;
};

const watched = () => {
  if (!watching) return null;
  noticed(watching.observer.takeRecords());
  const body = bodyOf(document);
  let page = null;
  const shows = ({ element, text }) => {
    const at = element.deref();
    if (at && isConnected(at)) return canBeSeen(at) && innerTextOf(at).includes(text.replace(/…$/, ''));
    page ??= body ? innerTextOf(body) : '';  // it may have been put there anew
    return page.includes(text);
  };
  const brief = watching.kept.filter((each) => !shows(each)).map(({ text }) => text);
  return { quiet: (performance.now() - watching.changed) / 1000, brief };
};
