// The eyes: commands, refs, and ways to the DOM that no page can block.
//
// The files of the eyes (eyes.py lists them) are the body of one function, whose `engine` is a Playwright selector
// engine for an isolated world: it shares the DOM with the page, but no JavaScript objects. It only reads. Named form
// controls can shadow properties of forms and of the document (<input name="parentNode">) in this world too, so what
// is asked of just any element is asked by the getters of the prototypes.
//
// Commands (the engine's selector):
//   look AFTER    JSON {url, title, root, remarks, last}; new refs are numbers greater than AFTER
//   ref N         the element with that ref
//   ping          true: the document can be asked
//   watch         begin to take note of changes
//   watched       JSON {quiet, brief}, or null when nobody watches in this document

const getters = (type, names) => names.split(' ').map((name) => {
  const { get } = Object.getOwnPropertyDescriptor(type.prototype, name);
  return (object) => get.call(object);
});
const methods = (type, names) => names.split(' ').map((name) => {
  const call = type.prototype[name];
  return (object, a, b, c) => call.call(object, a, b, c);
});
const onRoots = (names) => names.split(' ').map((name) => (root, a, b) =>
  (root === document ? Document : root instanceof ShadowRoot ? ShadowRoot : Element).prototype[name].call(root, a, b));

const [nodeType, firstChild, nextSibling, parentNode, textContent, isConnected] =
  getters(Node, 'nodeType firstChild nextSibling parentNode textContent isConnected');
const [dataOf] = getters(CharacterData, 'data');
const [rawName, openShadow, slotOf, firstElement, nextElement, elementCount] =
  getters(Element, 'localName shadowRoot assignedSlot firstElementChild nextElementSibling childElementCount');
const [scrollLeft, scrollTop, scrollWidth, scrollHeight, clientLeft, clientTop, clientWidth, clientHeight] =
  getters(Element, 'scrollLeft scrollTop scrollWidth scrollHeight clientLeft clientTop clientWidth clientHeight');
const [offsetWidth, offsetHeight, innerText, tabIndex] =
  getters(HTMLElement, 'offsetWidth offsetHeight innerText tabIndex');
const [documentElement, bodyOf, titleOf, activeElement, scrollingElement] =
  getters(Document, 'documentElement body title activeElement scrollingElement');
const [rootNode] = methods(Node, 'getRootNode');
const [attribute, has, box, matches, visibleNow] =
  methods(Element, 'getAttribute hasAttribute getBoundingClientRect matches checkVisibility');
const [newElement, newRange, newWalker] = methods(Document, 'createElement createRange createTreeWalker');
const [find, findAll, byId, pointed] = onRoots('querySelector querySelectorAll getElementById elementFromPoint');

const isHtml = (element) => element instanceof HTMLElement;
const styleOf = (element) => getComputedStyle(element);
const SEEN = { visibilityProperty: true, opacityProperty: true };

const words = (text) => new Set(text.split(' '));
const SKIPPED = words('script style noscript template head link meta title base param source track datalist col ' +
  'colgroup');
const FOREIGN = words('svg a title use script style');

/** The name of an HTML element; elements of SVG and XML, except a few, are given names that HTML has not. */
const localName = (element) => {
  const name = rawName(element);
  return isHtml(element) || FOREIGN.has(name) ? name : '-' + name;
};

/** The parent in the flat tree: what slots and shadow roots make of the document. */
const above = (node) => {
  const slot = nodeType(node) === 1 && slotOf(node);
  if (slot) return slot;
  const parent = parentNode(node);
  if (!parent || nodeType(parent) === 1) return parent;
  return nodeType(parent) === 11 && parent.host || null;
};

/** Whether a node is in an element, or is it, in the flat tree. */
const inside = (node, ancestor) => {
  for (let at = node; at; at = above(at)) if (at === ancestor) return true;
  return false;
};

const cleaned = (text) => text.replace(/[\u00ad\u200b\ufeff\u2060]/g, '');
const fold = (text) => cleaned(text).replace(/[ \t\n\r\f\u00a0]+/g, ' ').trim();
const NOT_BLANK = /[^ \t\n\r\f\u00a0\u00ad\u200b\ufeff\u2060]/;
const short = (text, most = 300) =>
  text.length > most ? text.slice(0, most).replace(/[\ud800-\udbff]$/, '') + '…' : text;
const named = (element, name) => fold((attribute(element, name) || '').slice(0, 2000));  // a text in an attribute

const numbers = new WeakMap();
const elements = new Map();
let last = 0;

/** The number by which an element can be acted on, always the same. */
const refOf = (element) => {
  let number = numbers.get(element);
  if (number === undefined) {
    number = ++last;
    numbers.set(element, number);
    elements.set(number, new WeakRef(element));
  }
  return number;
};

const COMMANDS = {
  look: (after) => look(Number(after)), ping: () => true, watch: () => watch(), watched: () => watched(),
};

const run = (selector) => {
  const [command, argument] = selector.trim().split(/\s+/);
  if (command === 'ref') {
    const element = elements.get(Number(argument))?.deref();
    return element && isConnected(element) ? [element] : [];
  }
  const carrier = newElement(document, 'pre');
  Object.getOwnPropertyDescriptor(Node.prototype, 'textContent').set
    .call(carrier, JSON.stringify(COMMANDS[command](argument)));
  return [carrier];
};

const engine = {
  query: (root, selector) => run(selector)[0] || null,
  queryAll: (root, selector) => run(selector),
};
