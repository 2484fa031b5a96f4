// The eyes: turns the document it runs in into the tree that gad/core/page.py describes.
//
// It is a Playwright selector engine for an isolated world: it shares the DOM with the page, but no JavaScript objects.
// It only reads. Named form controls can shadow properties of forms and documents (<input name="parentNode">), in this
// world too, so properties of nodes are read by the getters of the prototypes.
//
// Commands (the engine's selector):
//   look AFTER    JSON {url, title, type, root, remarks, last}; new refs are numbers greater than AFTER
//   ref N         the element with that ref
//   ping          true: the document can be asked
//   watch         begin to take note of changes
//   watched       JSON {quiet, brief}, or null when nobody watches in this document
(() => {
  'use strict';

  const BUDGET = 1_500_000;    // characters of JSON
  const KEPT_LIKE = 20;        // like siblings that are kept beyond the budget
  const LIKE = 6;              // so many siblings of one make are a list
  const OPTIONS = 15;
  const MOST_CLICKABLE = 500;  // characters on what is a control by its looks only
  const DEEPEST = 600;         // levels of the DOM that are walked (parsers make 512); below, text without controls
  const TESTING = 500;         // milliseconds for hit tests; what is not tested is taken as not covered

  // -- access that the page cannot shadow ----------------------------------------------------------------------------

  const getter = (type, name) => {
    const get = Object.getOwnPropertyDescriptor(type.prototype, name).get;
    return (object) => get.call(object);
  };
  const method = (type, name) => {
    const call = type.prototype[name];
    return (object, a, b) => call.call(object, a, b);
  };
  const nodeType = getter(Node, 'nodeType');
  const firstChild = getter(Node, 'firstChild');
  const nextSibling = getter(Node, 'nextSibling');
  const parentNode = getter(Node, 'parentNode');
  const textContent = getter(Node, 'textContent');
  const isConnected = getter(Node, 'isConnected');
  const rootNode = method(Node, 'getRootNode');
  const contains = method(Node, 'contains');
  const dataOf = getter(CharacterData, 'data');
  const rawName = getter(Element, 'localName');
  const FOREIGN = new Set(['svg', 'a', 'title', 'use', 'script', 'style']);
  /** The name of an HTML element; elements of SVG and XML, except a few, are given names that HTML has not. */
  const localName = (element) => {
    const name = rawName(element);
    return element instanceof HTMLElement || FOREIGN.has(name) ? name : '-' + name;
  };
  const attribute = method(Element, 'getAttribute');
  const has = method(Element, 'hasAttribute');
  const box = method(Element, 'getBoundingClientRect');
  const matches = method(Element, 'matches');
  const visibleNow = method(Element, 'checkVisibility');
  const openShadow = getter(Element, 'shadowRoot');
  const slotOf = getter(Element, 'assignedSlot');
  const firstElement = getter(Element, 'firstElementChild');
  const nextElement = getter(Element, 'nextElementSibling');
  const elementCount = getter(Element, 'childElementCount');
  const scrollLeft = getter(Element, 'scrollLeft');
  const scrollTop = getter(Element, 'scrollTop');
  const scrollWidth = getter(Element, 'scrollWidth');
  const scrollHeight = getter(Element, 'scrollHeight');
  const clientLeft = getter(Element, 'clientLeft');
  const clientTop = getter(Element, 'clientTop');
  const clientWidth = getter(Element, 'clientWidth');
  const clientHeight = getter(Element, 'clientHeight');
  const offsetWidth = getter(HTMLElement, 'offsetWidth');
  const offsetHeight = getter(HTMLElement, 'offsetHeight');
  const innerText = getter(HTMLElement, 'innerText');
  const assignedNodes = method(HTMLSlotElement, 'assignedNodes');
  const labelsOf = {
    input: getter(HTMLInputElement, 'labels'), select: getter(HTMLSelectElement, 'labels'),
    textarea: getter(HTMLTextAreaElement, 'labels'), button: getter(HTMLButtonElement, 'labels'),
    meter: getter(HTMLMeterElement, 'labels'), progress: getter(HTMLProgressElement, 'labels'),
  };
  const labelled = getter(HTMLLabelElement, 'control');
  const documentElement = getter(Document, 'documentElement');
  const bodyOf = getter(Document, 'body');
  const find = (root, selector) => root === document
    ? Document.prototype.querySelector.call(root, selector) : root.querySelector(selector);
  const findAll = (root, selector) => {
    const type = nodeType(root) === 9 ? Document : nodeType(root) === 11 ? DocumentFragment : Element;
    return type.prototype.querySelectorAll.call(root, selector);
  };
  const byId = (root, id) => (root === document ? Document : DocumentFragment).prototype.getElementById.call(root, id);
  const pointed = (root, x, y) => (root === document ? Document : ShadowRoot).prototype.elementFromPoint.call(root, x, y);
  const newElement = (name) => Document.prototype.createElement.call(document, name);

  const isElement = (node) => nodeType(node) === 1;
  const isHtml = (element) => element instanceof HTMLElement;
  const styleOf = (element) => getComputedStyle(element);
  const focused = () => {
    let found = getter(Document, 'activeElement')(document);
    for (let shadow; found && (shadow = openShadow(found)) && shadow.activeElement;) found = shadow.activeElement;
    return found;
  };

  /** The parent in the flat tree: what slots and shadow roots make of the document. */
  const above = (node) => {
    const slot = isElement(node) && slotOf(node);
    if (slot) return slot;
    const parent = parentNode(node);
    if (!parent) return null;
    if (nodeType(parent) === 11) return parent.host || null;
    return nodeType(parent) === 1 ? parent : null;
  };
  const inside = (node, ancestor) => {
    for (let at = node; at; at = above(at)) if (at === ancestor) return true;
    return false;
  };
  /** The children in the flat tree. */
  const below = (element, name) => {
    const shadow = openShadow(element);
    if (shadow) return firstChild(shadow);
    return firstChild(element);
  };

  // -- refs ----------------------------------------------------------------------------------------------------------

  const numbers = new WeakMap();
  const elements = new Map();
  let last = 0;
  const refOf = (element) => {
    let number = numbers.get(element);
    if (number === undefined) {
      number = ++last;
      numbers.set(element, number);
      elements.set(number, new WeakRef(element));
    }
    return number;
  };

  // -- what things are ------------------------------------------------------------------------------------------------

  const words = (text) => new Set(text.trim().split(/\s+/));
  const SKIPPED = words('script style noscript template head link meta title base param source track datalist col colgroup');
  const BLOCK_KINDS = words('block h1 h2 h3 h4 h5 h6 list item table row cell pre quote main article nav aside header footer ' +
    'search form group dialog frame more');
  const REGIONS = words('main article nav aside header footer search form group dialog');
  const TAG_KINDS = { h1: 'h1', h2: 'h2', h3: 'h3', h4: 'h4', h5: 'h5', h6: 'h6', ul: 'list', ol: 'list', menu: 'list',
    pre: 'pre', blockquote: 'quote', main: 'main', article: 'article', nav: 'nav', aside: 'aside', search: 'search',
    form: 'form', fieldset: 'group', dialog: 'dialog' };
  const ROLE_KINDS = { main: 'main', article: 'article', navigation: 'nav', complementary: 'aside', banner: 'header',
    contentinfo: 'footer', search: 'search', form: 'form', group: 'group', radiogroup: 'group', dialog: 'dialog',
    alertdialog: 'dialog', list: 'list', listitem: 'item', table: 'table', grid: 'table', treegrid: 'table', row: 'row',
    cell: 'cell', gridcell: 'cell', columnheader: 'cell', rowheader: 'cell', presentation: 'none', none: 'none' };
  const CONTROL_ROLES = words('checkbox radio switch tab menuitem menuitemcheckbox menuitemradio option combobox textbox ' +
    'searchbox slider spinbutton treeitem');
  const MARKS = { del: 'deleted', s: 'deleted', strike: 'deleted', code: 'code', kbd: 'code', samp: 'code', tt: 'code',
    sup: 'sup' };
  const HOLDERS = words('input select textarea video audio canvas progress meter');  // what is in them is no name
  const SEE_THROUGH = words('checkbox radio file range');
  const AD_LABELS = words('advertisement advertisements advertising anzeige anzeigen werbung publicité publicidad reklama');
  const AD_ID = /^(google_ads|div-gpt-ad|aswift_|taboola-|outbrain_widget)/;
  const AD_CLASS = /(^|\s)(adsbygoogle|trc_related_container|OUTBRAIN|ob-widget)(\s|$)/;
  const AD_HOST = new RegExp('(^|\\.)(doubleclick\\.net|googlesyndication\\.com|googleadservices\\.com|googletagmanager\\.com|' +
    'adnxs\\.com|amazon-adsystem\\.com|taboola\\.com|outbrain\\.com|criteo\\.(com|net)|adform\\.net|rubiconproject\\.com|' +
    'pubmatic\\.com|casalemedia\\.com|smartadserver\\.com|scorecardresearch\\.com)$');

  const TEXT = Symbol('characters of text outside of links');
  const TARGET = Symbol('control that a label names');

  const cleaned = (text) => text.replace(/[\u00ad\u200b\ufeff\u2060]/g, '');
  const fold = (text) => cleaned(text).replace(/[ \t\n\r\f\u00a0]+/g, ' ').trim();
  const short = (text, most = 300) => text.length > most ? text.slice(0, most).replace(/[\ud800-\udbff]$/, '') + '…' : text;
  const NOT_BLANK = /[^ \t\n\r\f\u00a0\u00ad\u200b\ufeff\u2060]/;
  const plain = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, ' ').trim();

  const roleOf = (element) => (attribute(element, 'role') || '').trim().toLowerCase().split(/\s+/)[0];

  const isAd = (element) => {
    const id = attribute(element, 'id');
    if (id && AD_ID.test(id)) return true;
    const made = attribute(element, 'class');
    if (made && AD_CLASS.test(made)) return true;
    const label = attribute(element, 'aria-label');
    return Boolean(label) && AD_LABELS.has(label.trim().toLowerCase());
  };

  const hrefOf = (element) => {
    let found = element.href;
    if (found && typeof found === 'object') found = found.baseVal;
    if (typeof found !== 'string' || /^javascript:/i.test(found)) return '';
    return /^(data|blob):/i.test(found) ? short(found, 60) : found;
  };

  /** The text below an element with what is hidden: good enough for a name. */
  const nameFrom = (element, depth = 0) => {
    let found = '';
    for (let node = below(element); node; node = nextSibling(node)) {
      const type = nodeType(node);
      if (type === 3) found += dataOf(node);
      else if (type === 1 && depth < 20) {
        const name = localName(node);
        if (name === 'img' || name === 'area') found += ' ' + (attribute(node, 'alt') || '') + ' ';
        else if (name === 'title' && node instanceof SVGElement) found += textContent(node);
        else if (name === 'input' || name === 'select' || name === 'textarea' || SKIPPED.has(name)) continue;
        else if (attribute(node, 'aria-hidden') === 'true') continue;
        else {
          const label = attribute(node, 'aria-label');
          const inline = /^(a|abbr|b|bdi|bdo|cite|em|i|mark|q|s|small|span|strong|sub|sup|u|font|slot)$/.test(name);
          found += (inline ? '' : ' ') + (label || nameFrom(node, depth + 1)) + (inline ? '' : ' ');
        }
      }
      if (found.length > 2000) break;
    }
    return found;
  };

  const referred = (element, name) => {
    const ids = attribute(element, name);
    if (!ids) return '';
    const root = rootNode(element);
    if (root !== document && !(root instanceof ShadowRoot)) return '';
    return fold(ids.trim().split(/\s+/).map((id) => byId(root, id)).filter(Boolean)
      .map((found) => attribute(found, 'aria-label') || nameFrom(found)).join(' '));
  };

  /** Words of an address or a class that tell what a picture without a name may be. */
  const guessed = (element, link) => {
    if (link) {
      const path = (hrefOf(element).split(/[?#]/)[0] || '').replace(/\/+$/, '');
      const end = path.slice(path.lastIndexOf('/') + 1);
      try { return short(decodeURIComponent(end), 60); } catch { return short(end, 60); }
    }
    const inner = find(element, 'svg use, i[class], span[class], svg[class], img[src]');
    const source = inner && localName(inner) === 'img' ? (attribute(inner, 'src') || '').split(/[?#]/)[0].split('/').pop() : '';
    const use = inner && localName(inner) === 'use'
      ? (attribute(inner, 'href') || attribute(inner, 'xlink:href') || '').split('#').pop() : '';
    const found = attribute(element, 'id') || attribute(element, 'name') || use || (source.length < 60 ? source : '') ||
      (attribute(element, 'class') || '').trim().split(/\s+/)[0] || (inner && (attribute(inner, 'class') || '').trim().split(/\s+/)[0]);
    return found ? '(' + short(found, 40) + ')' : '';
  };

  /** The accessible name, as far as what is shown on the control does not say it. */
  const labelOf = (element, name, shown, link) => {
    let label = '';
    const labels = labelsOf[name] && labelsOf[name](element);
    if (labels) for (const each of labels) label += ' ' + nameFrom(each);
    label = fold(label) || referred(element, 'aria-labelledby') || fold(attribute(element, 'aria-label') || '') ||
      fold(name === 'input' || name === 'img' || name === 'area' ? attribute(element, 'alt') || '' : '');
    if (!label && !shown) {
      label = (HOLDERS.has(name) ? '' : fold(nameFrom(element))) || fold(attribute(element, 'title') || '');
    }
    if (label && shown && (plain(shown).includes(plain(label)) || !plain(label))) return '';
    return short(label);
  };

  const statesOf = (element, name, role, type) => {
    const states = [];
    const aria = (key) => attribute(element, 'aria-' + key);
    const input = name === 'input';
    const truth = (value) => value !== null && value !== 'false' && value !== '';
    if (input && (type === 'checkbox' || type === 'radio')) {
      states.push(element.indeterminate && type === 'checkbox' ? 'mixed' : element.checked ? 'checked' : 'unchecked');
    } else if (/^(checkbox|radio|switch|menuitemcheckbox|menuitemradio)$/.test(role) || aria('checked') !== null) {
      const checked = aria('checked');
      states.push(checked === 'true' ? 'checked' : checked === 'mixed' ? 'mixed' : 'unchecked');
    }
    if ((labelsOf[name] && matches(element, ':disabled')) || aria('disabled') === 'true') states.push('disabled');
    if ((name === 'textarea' || (input && !/^(checkbox|radio|file|range|color|button|submit|reset|image)$/.test(type)))
      ? element.readOnly : aria('readonly') === 'true') states.push('readonly');
    if ((labelsOf[name] && element.required === true) || aria('required') === 'true') states.push('required');
    if (name === 'summary') states.push(has(above(element) || element, 'open') ? 'expanded' : 'collapsed');
    else if (aria('expanded') === 'true') states.push('expanded');
    else if (aria('expanded') === 'false') states.push('collapsed');
    if (aria('selected') === 'true') states.push('selected');
    if (aria('pressed') === 'true') states.push('pressed');
    else if (aria('pressed') === 'mixed') states.push('mixed');
    if (truth(aria('current'))) states.push('current');
    if (truth(aria('invalid')) || (labelsOf[name] && matches(element, ':user-invalid'))) states.push('invalid');
    if (element === see.focus) states.push('focused');
    if (element.multiple === true && (name === 'select' || (input && /^(file|email)$/.test(type)))) states.push('multiple');
    return states;
  };

  /** Kind and type of what can be acted on; null for anything else. */
  const controlOf = (element, name, role, style, context) => {
    const custom = () => {
      if (role === 'link') return ['link', ''];
      if (role === 'button') return ['button', ''];
      if (CONTROL_ROLES.has(role)) return ['control', role];
      if (role === 'gridcell' && has(element, 'tabindex')) return ['control', role];
      return null;
    };
    switch (name) {
      case 'a':
        if (has(element, 'href') || has(element, 'xlink:href')) {
          return (role !== 'link' && role !== 'button' && custom()) || (role === 'button' && !hrefOf(element) ? ['button', ''] : ['link', '']);
        }
        // Without an address it is the target of a link when it has a name, else a script makes it one.
        if (!role && !has(element, 'name') && !has(element, 'id') && !context.control && !(element instanceof SVGElement)) return ['control', 'clickable'];
        break;
      case 'button': return custom() || ['button', ''];
      case 'input': {
        const type = element.type;
        if (type === 'hidden') return null;
        if (/^(submit|button|reset|image)$/.test(type)) return ['button', ''];
        return ['input', role === 'switch' || role === 'combobox' ? role : type];
      }
      case 'select': return ['select', ''];
      case 'textarea': return ['textarea', ''];
      case 'summary': {
        const parent = above(element);
        if (parent && (localName(parent) === 'details')) return ['button', ''];
        break;
      }
      case 'video': case 'audio': return ['control', name];
    }
    const editable = attribute(element, 'contenteditable');
    if ((editable !== null && editable !== 'false' && isHtml(element)) ||
      (name === 'body' && document.designMode === 'on')) return ['editable', ''];
    const found = custom();
    if (found) return found;
    if (name === 'html' || name === 'body' || name === 'label' || context.control) return null;
    if (has(element, 'onclick')) return ['control', 'clickable'];
    if (style.cursor === 'pointer' && (!context.pointer || (has(element, 'tabindex') && isHtml(element) && element.tabIndex >= 0))) {
      return ['control', 'clickable'];
    }
    return null;
  };

  // -- what can be seen -------------------------------------------------------------------------------------------------

  // A frame is what content is clipped to: c.. can be reached by scrolling, p.. (the port) shows at the moment.
  const frame = (cl, ct, cr, cb, pl, pt, pr, pb) => ({ cl, ct, cr, cb, pl, pt, pr, pb });
  const NOTHING = frame(0, 0, 0, 0, 0, 0, 0, 0);

  const rootFrame = () => {
    const html = documentElement(document);
    const body = bodyOf(document);
    const width = innerWidth, height = innerHeight;
    const scroller = getter(Document, 'scrollingElement')(document) || html;
    const wide = Math.max(scrollWidth(scroller), width), high = Math.max(scrollHeight(scroller), height);
    const fixedX = [html, body].some((each) => each && isHtml(each) && /hidden|clip/.test(styleOf(each).overflowX));
    let left = -scrollX, right = left + wide;
    if (styleOf(body || html).direction === 'rtl' || styleOf(html).direction === 'rtl') {
      right = width - scrollX;
      left = right - wide;
    }
    if (fixedX) left = 0, right = width;
    return frame(left, -scrollY, right, high - scrollY, 0, 0, width, height);
  };

  const innerFrame = (element, style, outer, overflow) => {
    const [x, y = x] = overflow.split(' ');
    const rect = box(element);
    const left = rect.left + clientLeft(element), top = rect.top + clientTop(element);
    let right = rect.right, bottom = rect.bottom;
    if (isHtml(element)) {
      right -= offsetWidth(element) - clientWidth(element) - clientLeft(element);
      bottom -= offsetHeight(element) - clientHeight(element) - clientTop(element);
    }
    const inner = frame(Math.max(outer.cl, left), Math.max(outer.ct, top), Math.min(outer.cr, right), Math.min(outer.cb, bottom),
      Math.max(outer.pl, left), Math.max(outer.pt, top), Math.min(outer.pr, right), Math.min(outer.pb, bottom));
    if (x === 'visible') inner.cl = outer.cl, inner.cr = outer.cr, inner.pl = outer.pl, inner.pr = outer.pr;
    if (y === 'visible') inner.ct = outer.ct, inner.cb = outer.cb, inner.pt = outer.pt, inner.pb = outer.pb;
    if (inner.cr - inner.cl <= 1 || inner.cb - inner.ct <= 1) return NOTHING;
    const scrolls = /auto|scroll/;
    if (scrolls.test(x)) {
      const wide = scrollWidth(element), at = scrollLeft(element);
      const backwards = style.direction === 'rtl' || style.flexDirection === 'row-reverse' || at < 0;
      inner.cl = backwards ? right - at - wide : left - at;
      inner.cr = backwards ? right - at : left - at + wide;
    }
    if (scrolls.test(y)) {
      const high = scrollHeight(element), at = scrollTop(element);
      const backwards = style.flexDirection === 'column-reverse' || at < 0;
      inner.ct = backwards ? bottom - at - high : top - at;
      inner.cb = backwards ? bottom - at : top - at + high;
    }
    return inner;
  };

  const reaches = (rect, to) =>
    Math.min(rect.right, to.cr) - Math.max(rect.left, to.cl) > 1.01 && Math.min(rect.bottom, to.cb) - Math.max(rect.top, to.ct) > 1.01;

  const clippedAway = (style) => {
    const path = style.clipPath;
    if (path !== 'none') {
      const inset = /^inset\(([\d.]+)(%|px)(?: ([\d.]+)(%|px))?/.exec(path);
      if (inset && inset[2] === '%' && +inset[1] >= 50 && (inset[3] === undefined || +inset[3] >= 50)) return true;
      if (/^circle\(0(px|%)?[ )]/.test(path) || /^polygon\((0(px|%)? 0(px|%)?,? ?)+\)$/.test(path)) return true;
    }
    if (style.position !== 'absolute' && style.position !== 'fixed') return false;
    const clip = /^rect\((-?[\d.]+)px,? (-?[\d.]+)px,? (-?[\d.]+)px,? (-?[\d.]+)px\)$/.exec(style.clip);
    return Boolean(clip) && (clip[2] - clip[4] <= 1 || clip[3] - clip[1] <= 1);
  };

  const hitAt = (x, y) => {
    let found = pointed(document, x, y);
    for (let shadow; found && (shadow = openShadow(found));) {
      const inner = pointed(shadow, x, y);
      if (!inner || inner === found) break;
      found = inner;
    }
    return found;
  };

  const opaque = (element) => {
    if (/^(img|video|canvas|iframe|embed|object)$/.test(localName(element))) return true;
    const style = styleOf(element);
    if (+style.opacity < 0.9) return false;
    if (style.backgroundImage !== 'none' && /url\(/.test(style.backgroundImage)) return true;
    const alpha = /^rgba?\([^)]*?(?:,|\/)\s*([\d.]+)\)$/.exec(style.backgroundColor);
    return !/^rgba\(|\//.test(style.backgroundColor) || Boolean(alpha && +alpha[1] >= 0.9);
  };

  /** What hides a point of an element: true, false, or null when nothing can be said. */
  const coveredAt = (element, x, y) => {
    const since = performance.now();
    const hit = hitAt(x, y);
    see.tests++;
    see.testing += performance.now() - since;
    if (!hit) return null;
    if (hit === element || inside(element, hit) || inside(hit, element)) return false;
    let solid = false;
    for (let at = hit; at && !inside(element, at); at = above(at)) {
      if (/fixed|sticky/.test(styleOf(at).position)) return null;
      solid = solid || opaque(at);
    }
    return solid ? true : null;
  };

  const points = (rect, to) => {
    const left = Math.max(rect.left, to.pl), top = Math.max(rect.top, to.pt);
    const right = Math.min(rect.right, to.pr), bottom = Math.min(rect.bottom, to.pb);
    if (right - left < 2 || bottom - top < 2) return [];
    const inX = Math.min(3, (right - left) / 4), inY = Math.min(3, (bottom - top) / 4);
    return [[(left + right) / 2, (top + bottom) / 2], [left + inX, top + inY], [right - inX, top + inY],
      [left + inX, bottom - inY], [right - inX, bottom - inY]];
  };

  const covered = (element, rect, context) => {
    const found = points(rect, context.flow);
    if (context.behind) {
      // An overlay lies over the page: only what is found by a hit test is before it.
      return !found.some(([x, y]) => {
        const hit = hitAt(x, y);
        return hit && (inside(hit, element) || (inside(element, hit) && !see.overlays.has(hit) && hit !== documentElement(document) && hit !== bodyOf(document)));
      });
    }
    if (!found.length || see.testing > TESTING) return false;
    for (const [x, y] of found) if (coveredAt(element, x, y) !== true) return false;
    return styleOf(element).pointerEvents !== 'none';
  };

  /** Boxes of the first texts in the viewport that are not in `tops`. */
  const textsOutside = (body, tops, most) => {
    const found = [];
    const walker = Document.prototype.createTreeWalker.call(document, body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, {
      acceptNode: (node) => (nodeType(node) === 1 ? tops.has(node) || SKIPPED.has(localName(node)) ? NodeFilter.FILTER_REJECT
        : NodeFilter.FILTER_SKIP : NOT_BLANK.test(dataOf(node)) ? NodeFilter.FILTER_ACCEPT : NodeFilter.FILTER_REJECT),
    });
    for (let looked = 0; found.length < most && looked < 2000 && walker.nextNode(); looked++) {
      see.range.selectNodeContents(walker.currentNode);
      const rect = see.range.getBoundingClientRect();
      const shown = rect.width > 1 && rect.height > 1 && rect.left >= 0 && rect.top >= 0 && rect.right <= innerWidth && rect.bottom <= innerHeight;
      if (shown && visibleNow(parentNode(walker.currentNode), { visibilityProperty: true, opacityProperty: true })) found.push(rect);
    }
    return found;
  };

  /** The elements that lie over all of the page, with what is before them; empty when there are none. */
  const findOverlays = () => {
    const html = documentElement(document), body = bodyOf(document);
    const overlays = new Set();
    if (!body) return overlays;
    for (const dialog of findAll(document, 'dialog')) if (matches(dialog, ':modal')) overlays.add(dialog);
    if (overlays.size) return overlays;
    const lengths = new Map();
    const length = (element) => {
      if (!lengths.has(element)) {
        let count = textContent(element).length;
        for (const hidden of findAll(element, 'script, style, noscript, template')) count -= textContent(hidden).length;
        lengths.set(element, count);
      }
      return lengths.get(element);
    };
    const outOf = new Map();
    const floating = (element) => {
      if (!outOf.has(element)) {
        const position = styleOf(element).position;
        const out = position === 'fixed' || position === 'absolute' || (isHtml(element) && has(element, 'popover') && matches(element, ':popover-open'));
        outOf.set(element, out && length(element) <= 0.8 * length(body));
      }
      return outOf.get(element);
    };
    const outermost = (element) => {
      let found = null;
      for (let at = element; at && at !== body && at !== html; at = above(at)) if (floating(at)) found = at;
      return found;
    };
    const width = innerWidth, height = innerHeight, side = 7;
    if (width < 50 || height < 50) return overlays;
    const tops = new Set();
    const spots = [];
    for (let i = 0; i < side; i++) for (let j = 0; j < side; j++) spots.push([width * (i + 0.5) / side, height * (j + 0.5) / side]);
    let hits = 0;
    for (const [x, y] of spots) {
      const hit = hitAt(x, y);
      const top = hit && outermost(hit);
      if (top) hits++, tops.add(top);
    }
    if (hits < 0.9 * spots.length) return overlays;
    const locked = [html, body].some((each) => styleOf(each).overflowY === 'hidden' || styleOf(each).position === 'fixed');
    const scrolls = scrollHeight(html) > height + 1 && !locked;
    const filling = [...tops].filter((top) => {
      const rect = box(top);
      return rect.left <= 0.05 * width && rect.top <= 0.05 * height && rect.right >= 0.95 * width && rect.bottom >= 0.95 * height &&
        (!scrolls || styleOf(top).position === 'fixed');
    });
    if (!filling.length) return overlays;
    // Is there anything of the page behind it? Else it is no more than a picture before which the page scrolls.
    const behind = textsOutside(body, tops, 60).some(({ left, right, top, bottom }) => {
      const hit = hitAt((left + right) / 2, (top + bottom) / 2);
      return hit && filling.some((over) => inside(hit, over));
    });
    return behind || (locked && filling.some((top) => styleOf(top).position === 'fixed')) ? tops : overlays;
  };

  // -- the walk -----------------------------------------------------------------------------------------------------------

  let see = null;  // the state of the look that is under way

  // How texts join: `started` tells whether the line has begun, `space` that white space came since the last text,
  // `gap` that a box ended or began, so that a space is needed if the texts are seen apart.
  const boundary = () => { see.started = false; see.space = false; see.gap = false; see.edge = null; };

  const apart = (rect) => {
    const edge = see.edge;
    if (!edge || !rect) return true;
    if (Math.min(edge.bottom, rect.bottom) - Math.max(edge.top, rect.top) < 0.3 * Math.min(edge.height, rect.height)) return true;
    return Math.min(Math.abs(rect.left - edge.right), Math.abs(edge.left - rect.right)) > 1.5;
  };

  const joint = (rect) => see.started && (see.space || (see.gap && apart(rect))) ? ' ' : '';

  const push = (out, text) => {
    if (!text) return;
    const end = out.length - 1;
    if (end >= 2 && typeof out[end] === 'string') out[end] += text;
    else out.push(text);
  };

  const written = (rect) => { see.writes++; see.started = true; see.space = false; see.gap = false; see.edge = rect; };

  const emitText = (out, data, context, rect) => {
    if (context.pre) {
      push(out, data.replace(/\r\n?/g, '\n'));
      written(rect);
      return;
    }
    const keeps = context.space === 'preserve' || context.space === 'break-spaces';
    if (keeps || context.space === 'preserve-breaks') {
      const lines = cleaned(data).split(/\r\n?|\n/);
      lines.forEach((line, index) => {
        if (index) out.push(['break', {}]), boundary();
        const text = keeps ? line.replace(/\u00a0/g, ' ').trimEnd() : fold(line);
        if (!text) return;
        push(out, (keeps && /^\s/.test(text) ? '' : joint(rect)) + text);
        written(rect);
        see.space = /\s$/.test(line);
      });
      return;
    }
    const text = fold(data);
    if (/^[ \t\n\r\f\u00a0]/.test(data)) see.space = true;
    push(out, joint(rect) + text);
    written(rect);
    if (/[ \t\n\r\f\u00a0]$/.test(data)) see.space = true;
  };

  const textNode = (node, parent, context, out) => {
    const data = dataOf(node);
    if (!NOT_BLANK.test(data)) {
      if (context.pre) {
        if (context.visible) push(out, data);
      } else if (/^(preserve|break)/.test(context.space) && /\n/.test(data) && see.started) {
        out.push(['break', {}]);
        boundary();
      } else if (/^(preserve|break-spaces)$/.test(context.space) && context.visible && !context.muted) push(out, data.replace(/[\t\u00a0]/g, ' '));
      else if (data) see.space = true;
      return;
    }
    if (!context.visible) return;
    see.range.selectNodeContents(node);
    const rect = see.range.getBoundingClientRect();
    if (!reaches(rect, context.flow)) return;
    if (covered(parent, rect, context)) {
      if (context.behind) see.behindText += fold(data).length;
      return;
    }
    if (context.muted) {
      const node = ['muted', { [TARGET]: context.muted }];
      node.push(fold(data));
      out.push(node);
      see.writes++;
      return;
    }
    if (!context.link) see.text += data.length;
    emitText(out, data, context, rect);
  };

  const children = (element, name, context, out) => {
    if (name === 'slot') {
      const assigned = assignedNodes(element);
      if (assigned.length) {
        for (const node of assigned) {
          if (nodeType(node) === 3) textNode(node, above(element) || element, context, out);
          else elementNode(node, context, out);
        }
        return;
      }
    }
    const closed = name === 'details' && !has(element, 'open');
    for (let node = below(element, name); node; node = nextSibling(node)) {
      const type = nodeType(node);
      if (type === 3 || type === 4) {
        if (!closed) textNode(node, element, context, out);
      } else if (type === 1) {
        if (closed) {
          if (localName(node) !== 'summary') continue;
          elementNode(node, context, out);
          return;
        }
        elementNode(node, context, out);
      }
    }
  };

  const makeOf = (element) => {
    const made = attribute(element, 'class');
    const name = localName(element);
    if (!made || name === 'li' || name === 'tr') return name;  // these are always items of one list
    return name + '.' + made.trim().split(/\s+/)
      .filter((word) => !/\d|^(odd|even|first|last|alt|alternate|active|current|selected|open|hover|focus)$/i.test(word)).sort().join('.');
  };

  // Prose is no list: its paragraphs are alike, but none stands for the others. Cells are thinned with their row.
  const CONTROL_KINDS = /^(link|button|input|select|textarea|control|frame)$/;
  const PROSE = words('p h1 h2 h3 h4 h5 h6 br hr pre blockquote dt dd td th span b i em strong option');
  const makesBelow = (element) => {
    if (elementCount(element) < LIKE) return null;
    const counts = new Map();
    for (let child = firstElement(element); child; child = nextElement(child)) {
      if (PROSE.has(localName(child))) continue;
      const make = makeOf(child);
      counts.set(make, (counts.get(make) || 0) + 1);
    }
    let found = null;
    for (const [make, count] of counts) if (count >= LIKE) (found = found || new Map()).set(make, count);
    return found;
  };

  const firstElementOf = (parent) => nodeType(parent) === 1 ? firstElement(parent) : parent.firstElementChild;
  const simple = /^-?[A-Za-z_][\w-]*$/;
  const countOf = (root, key, selector) => {
    const counts = see.counts.get(root) || new Map();
    see.counts.set(root, counts);
    if (!counts.has(key)) counts.set(key, findAll(root, selector).length);
    return counts.get(key);
  };

  /** A CSS selector that finds an element alone in its root. */
  const selectorOf = (element) => {
    const root = rootNode(element);
    const steps = [];
    for (let at = element; at && steps.length < 12; at = parentNode(at)) {
      if (nodeType(at) !== 1) break;
      const name = localName(at), id = attribute(at, 'id');
      if (name === 'html') { steps.unshift('html'); break; }
      if (id && id.length < 60) {
        const selector = '#' + CSS.escape(id);
        if (countOf(root, selector, selector) === 1) { steps.unshift(selector); break; }
      }
      if (name === 'body' || name === 'main') {
        if (countOf(root, name, name) === 1) { steps.unshift(name); break; }
      }
      const made = (attribute(at, 'class') || '').trim().split(/\s+/).filter((word) => simple.test(word)).slice(0, 4);
      const own = made.find((word) => countOf(root, '.' + word, '.' + word) === 1);
      if (own) { steps.unshift('.' + own); break; }
      let position = 0, alike = 0;
      for (let child = firstElementOf(parentNode(at)); child; child = nextElement(child)) {
        if (localName(child) === name) alike++;
        if (child === at) position = alike;
      }
      const alone = alike === 1;
      steps.unshift(CSS.escape(name) + (alone ? '' : `:nth-of-type(${position})`));
    }
    return steps.join(' > ');
  };

  /** A CSS selector that finds an element's children of the commonest make. */
  const childrenSelector = (element, makes) => {
    let [make, count] = [...makes].sort((a, b) => b[1] - a[1])[0];
    const name = make.split('.')[0];
    let tags = 0;
    const shared = new Map();
    for (let child = firstElement(element); child; child = nextElement(child)) {
      if (localName(child) === name) tags++;
      if (makeOf(child) !== make) continue;
      for (const word of new Set((attribute(child, 'class') || '').trim().split(/\s+/))) shared.set(word, (shared.get(word) || 0) + 1);
    }
    let step = CSS.escape(name);
    if (tags !== count) {
      const word = [...shared].find(([word, times]) => times === count && simple.test(word));
      if (word) step = (name === 'div' || name === 'span' ? '' : step) + '.' + word[0];
    }
    return selectorOf(element) + ' > ' + step;
  };

  const isDataTable = (table, role) => {
    if (role === 'presentation' || role === 'none') return false;
    const rows = table.rows;
    const inside = 'table, form, ul, ol, h1, h2, h3, h4, h5, h6, iframe, fieldset';
    if (role === 'table' || role === 'grid' || role === 'treegrid' || table.caption || table.tHead) return true;
    let columns = 0, headed = false, heavy = 0, cells = 0;
    for (let i = 0; i < rows.length && i < 50; i++) {
      columns = Math.max(columns, rows[i].cells.length);
      for (const cell of rows[i].cells) {
        cells++;
        if (localName(cell) === 'th') headed = true;
        else if (find(cell, inside) || elementCount(cell) > 4 && find(cell, 'p, div')) heavy++;
      }
    }
    if (headed) return !find(table, 'td table, td form');
    return rows.length > 1 && columns > 1 && heavy === 0;
  };

  /** A control that is transparent or hidden but can be acted on where it lies (then its own), or by its label. */
  const seeThrough = (element) => {
    const name = localName(element);
    return name === 'select' || (name === 'input' && SEE_THROUGH.has(element.type));
  };
  const isShown = (element) => {
    const rect = box(element);
    return rect.width > 1.01 && rect.height > 1.01 &&
      visibleNow(element, { visibilityProperty: true, opacityProperty: true }) && !clippedAway(styleOf(element)) &&
      rect.right > see.root.cl && rect.bottom > see.root.ct;
  };
  const shownLabel = (element) => {
    const labels = labelsOf[localName(element)](element);
    if (labels) for (const label of labels) if (isShown(label)) return label;
    return null;
  };

  const transparent = (element, context, out) => {
    const found = seeThrough(element) ? [element]
      : elementCount(element) && elementCount(element) < 6 ? [...findAll(element, 'input, select')].filter(seeThrough) : [];
    for (const control of found) {
      if (see.shown.has(control) || shownLabel(control)) continue;
      const rect = box(control), style = styleOf(control);
      if (rect.width < 8 || rect.height < 8 || style.visibility !== 'visible' || style.pointerEvents === 'none' || !reaches(rect, context.flow)) continue;
      const [middle] = points(rect, context.flow);
      if (middle) {
        const hit = hitAt(...middle);
        if (hit !== control) continue;
      }
      emitControl(control, localName(control), roleOf(control), ['input', control.type], style, { ...context, visible: true, likes: null }, context, out, rect, control);
    }
  };

  /** Pages let content fade in when it is scrolled to; a person sees it. */
  const awaitsScroll = (element, style) => /^(static|relative)$/.test(style.position) && box(element).top >= innerHeight &&
    ((/opacity|all/.test(style.transitionProperty) && /[1-9]/.test(style.transitionDuration)) || style.animationName !== 'none');

  const formLike = (element) => localName(element) === 'select' ? ['select', ''] : ['input', element.type];

  const valueOf = (element, name, type, attributes) => {
    if (name === 'input') {
      if (type === 'password') { if (element.value) attributes.value = '•••'; }
      else if (type === 'file') attributes.value = [...(element.files || [])].map((file) => file.name).join(', ');
      else if (type !== 'checkbox' && type !== 'radio' && type !== 'switch') attributes.value = short(element.value, 2000);
    } else if (name === 'textarea') attributes.value = short(element.value, 5000);
    else if (name === 'select') {
      const texts = [];
      const chosen = [];
      let left = 0;
      const options = element.options;
      const count = options.length;
      for (let i = 0; i < count; i++) {
        const option = options[i];
        if (has(option, 'hidden')) continue;
        const text = fold(option.label || textContent(option));
        if (option.selected) chosen.push(text);
        if (texts.length < OPTIONS) texts.push(text);
        else if (option.selected && chosen.length <= OPTIONS) texts.push(text);
        else left++;
      }
      if (left) texts.push(`(${left} more)`);
      if (texts.length) attributes.options = texts;
      attributes.value = chosen.join(', ');
    } else {
      const said = attribute(element, 'aria-valuetext') || attribute(element, 'aria-valuenow');
      if (said) attributes.value = fold(said);
    }
    if (!attributes.value) delete attributes.value;
    const hint = fold(attribute(element, 'placeholder') || attribute(element, 'aria-placeholder') || attribute(element, 'data-placeholder') || '');
    if (hint && /^(input|textarea|select|editable)$/.test(name)) attributes.hint = short(hint);
  };

  const shownText = (node) => {
    let found = '';
    for (let i = 2; i < node.length; i++) {
      const child = node[i];
      if (typeof child === 'string') found += child;
      else if (child[0] === 'image') found += ' ' + child[1].label + ' ';
      else if (child[0] !== 'muted') found += (BLOCK_KINDS.has(child[0]) ? ' ' : '') + shownText(child) + (BLOCK_KINDS.has(child[0]) ? ' ' : '');
    }
    return found;
  };

  const pseudoText = (element) => {
    let found = '';
    for (const pseudo of ['::before', '::after']) {
      const content = getComputedStyle(element, pseudo).content;
      const quoted = /^"((?:[^"\\]|\\.)*)"/.exec(content);
      if (quoted) found += quoted[1].replace(/\\(.)/g, '$1').replace(/[\ue000-\uf8ff]|[\u{f0000}-\u{10fffd}]/gu, '') + ' ';
    }
    return fold(found);
  };

  /** Put something that stands in the line into `out`, with the space that belongs before it. */
  const inline = (out, node, hadSpace, rect) => {
    if (hadSpace) push(out, ' ');
    if (typeof node[2] === 'string' && node[2].startsWith(' ')) {
      node[2] = node[2].slice(1);
      if (!hadSpace) push(out, ' ');
      if (!node[2]) node.splice(2, 1);
    }
    out.push(node);
  };

  const emitControl = (element, name, role, found, style, context, within, out, rect, target) => {
    const [kind, type] = found;
    const node = [kind, {}];
    const attributes = node[1];
    const lonely = !context.visible || rect.width <= 1.01 || rect.height <= 1.01 || !reaches(rect, context.flow);
    const holds = HOLDERS.has(name);
    const before = { text: see.text, controls: see.controls, space: see.space, started: see.started, gap: see.gap, edge: see.edge };
    const away = !lonely && covered(target, rect, context);
    if (holds && (lonely || away)) {
      if (context.behind && !lonely) see.behindControls++;
      return;
    }
    const hadSpace = see.started && (see.space || (see.gap && apart(rect)));
    see.space = false;
    if (holds) see.gap = false;
    const clickable = type === 'clickable';
    if (!holds) {
      // What only looks clickable may turn out to be no control, so controls in it are looked for.
      const inner = { ...within, control: context.control || !clickable, link: context.link || kind === 'link',
        pointer: context.pointer || clickable, likes: null, muted: null };
      if (/^(inline-|flex|grid|block)/.test(style.display)) see.gap = true;
      children(element, name, inner, node);
      if (/^(inline-|flex|grid|block)/.test(style.display)) see.gap = true;
    }
    if (name === 'input' && kind === 'button') {
      const text = fold(element.type === 'image' ? '' : element.value || ({ submit: 'Submit', reset: 'Reset' })[element.type] || '');
      if (text) node.push(text);
    }
    const nested = see.controls - before.controls;
    let shown = fold(shownText(node));
    // What looks clickable around other controls, or around much of the page, says nothing that these do not say.
    if (clickable && (nested > (has(element, 'onclick') ? 3 : 0) || shown.length > MOST_CLICKABLE)) {
      see.space = see.space || (hadSpace && node.length === 2);
      if (node.length > 2 && hadSpace) push(out, ' ');
      for (let i = 2; i < node.length; i++) typeof node[i] === 'string' ? push(out, node[i]) : out.push(node[i]);
      return;
    }
    if (!shown && !nested) {
      if (lonely || away) {
        if (context.behind && !lonely) see.behindControls++;
        Object.assign(see, { space: before.space, started: before.started, gap: before.gap, edge: before.edge });
        return;
      }
      if (!holds) {
        const text = pseudoText(element);
        if (text) node.push(text), shown = text;
      }
    }
    if (clickable && !shown && (rect.width < 6 || rect.height < 6 || rect.width > 400 && rect.height > 300)) return;
    let label = labelOf(element, name, shown, kind === 'link');
    if (!label && !shown && !holds && kind !== 'editable') label = guessed(element, kind === 'link') || (kind === 'link' ? guessed(element, false) : '');
    if (!label && kind === 'input' && type === 'file') {
      const parent = above(element);
      label = parent ? short(fold(nameFrom(parent)), 60) : '';
    }
    if (context.behind && (lonely || away)) {
      see.behindControls++;
      return;
    }
    if (type) attributes.type = type;
    if (label) attributes.label = label;
    if (kind === 'link' || name === 'a') {
      const url = hrefOf(element);
      if (url) attributes.url = url;
    }
    if (kind !== 'button' && kind !== 'link') valueOf(element, name, name === 'input' ? element.type : '', attributes);
    if (kind === 'control' && attributes.value && fold(attributes.value) === shown) delete attributes.value;
    const states = statesOf(element, name, role, name === 'input' ? element.type : '');
    if (context.inert) {
      if (!states.includes('disabled')) states.push('disabled');
      see.inert++;
    } else attributes.ref = refOf(target);
    if (states.length) attributes.state = states;
    see.controls++;
    see.shown.add(element);
    if (context.likes) {
      const make = makeOf(element);
      if (context.likes.has(make)) attributes.like = make;
    }
    inline(out, node, hadSpace, rect);
    if (holds || !shown) written(rect);
    else if (node.length > 2 && !see.started) written(rect);
  };

  const kindOf = (element, name, role, style, context) => {
    const byRole = ROLE_KINDS[role];
    if (byRole === 'none') return '';
    if (byRole) {
      if (/^(table|row|cell)$/.test(byRole)) {
        if (name === 'table') return 'table';
        if (byRole === 'table') return find(element, '[role=row], tr') ? 'table' : '';
        return context.table === 'data' ? byRole : '';
      }
      return byRole;
    }
    if (role === 'heading') {
      const level = +attribute(element, 'aria-level') || (/^h[1-6]$/.test(name) ? +name[1] : 2);
      return 'h' + Math.min(6, Math.max(1, level));
    }
    switch (name) {
      case 'li': return context.list ? 'item' : '';
      case 'table': return 'table';
      case 'tr': return context.table === 'data' ? 'row' : '';
      case 'td': case 'th': return context.table === 'data' ? 'cell' : '';
      case 'header': case 'footer': {
        for (let at = above(element); at; at = above(at)) {
          if (/^(article|aside|main|nav|section|form|dialog)$/.test(localName(at))) return '';
        }
        return name;
      }
    }
    return TAG_KINDS[name] || '';
  };

  const imageNode = (element, name, rect, context, out) => {
    let label = name === 'img' ? attribute(element, 'alt') || attribute(element, 'aria-label') || '' : attribute(element, 'aria-label') || '';
    if (name === 'svg') {
      const title = find(element, 'title');
      label = label || referred(element, 'aria-labelledby') || (title && parentNode(title) === element ? textContent(title) : '');
    } else label = label || referred(element, 'aria-labelledby') || (context.control ? '' : attribute(element, 'title') || '');
    label = short(fold(label));
    if (!label || rect.width < 3 || rect.height < 3 || !context.visible || !reaches(rect, context.flow) || covered(element, rect, context)) return;
    const hadSpace = see.started && (see.space || (see.gap && apart(rect)));
    inline(out, ['image', { label }], hadSpace, rect);
    written(rect);
  };

  const mapLinks = (element, context, out) => {
    const map = find(document, `map[name="${CSS.escape((attribute(element, 'usemap') || '').slice(1))}"]`);
    if (!map) return;
    for (const area of findAll(map, 'area[href]')) {
      const label = labelOf(area, 'area', '', true) || guessed(area, true);
      inline(out, ['link', { ref: refOf(area), label, url: hrefOf(area) }], see.started, null);
      see.controls++;
      see.started = true;
    }
  };

  const elementNode = (element, context, out) => {
    const name = localName(element);
    if (SKIPPED.has(name) || isAd(element)) return;
    if (element === context.title) return;
    see.elements++;
    const style = styleOf(element);
    const display = style.display;
    if (display === 'none') return;
    if (style.opacity === '0' && !awaitsScroll(element, style)) { transparent(element, context, out); return; }
    if (context.depth > DEEPEST) {
      if (isHtml(element) && visibleNow(element, { visibilityProperty: true, opacityProperty: true })) {
        const text = fold(innerText(element));
        if (text) emitText(out, ' ' + text + ' ', context, null);
      }
      return;
    }
    if (name === 'br') {
      if (context.pre) push(out, '\n');
      else if (see.started) out.push(['break', {}]), boundary();
      return;
    }
    const position = style.position;
    const top = see.overlays.has(element);
    const base = position === 'fixed' ? context.fixed : position === 'absolute' ? context.abs : context.flow;
    let flow = top && name === 'dialog' ? see.root : base;
    let abs = context.abs, fixed = context.fixed;
    const contents = display === 'contents';
    const clipped = clippedAway(style);
    if (clipped) flow = NOTHING;
    const overflow = style.overflow;
    const outer = flow;
    if (overflow !== 'visible' && display !== 'inline' && !contents && name !== 'html' && (name !== 'body' || see.bodyScrolls)) {
      flow = innerFrame(element, style, flow, overflow);
    }
    if (flow !== abs || flow !== fixed) {
      const transformed = style.transform !== 'none' || style.filter !== 'none' || style.perspective !== 'none' ||
        /paint|layout|strict|content/.test(style.contain) || /transform|filter/.test(style.willChange);
      if (position !== 'static' || transformed) abs = flow;
      if (transformed) fixed = flow;
    }
    const inner = {
      flow, abs, fixed, visible: style.visibility === 'visible', pointer: style.cursor === 'pointer', space: style.whiteSpaceCollapse,
      title: context.title, behind: context.behind && !top, control: context.control, link: context.link, pre: context.pre, muted: context.muted, list: context.list,
      table: context.table, likes: null, inert: context.inert || has(element, 'inert'), depth: context.depth + 1,
      row: /flex|grid/.test(display),
    };
    const role = roleOf(element);
    const outerContext = { ...inner, flow: outer, likes: context.likes, list: context.list, control: context.control, pointer: context.pointer };

    if (name === 'iframe' || name === 'frame') {
      const rect = box(element);
      if (!inner.visible || rect.width < 20 || rect.height < 20 || !reaches(rect, outer)) return;
      let host = '';
      try { host = new URL(element.src).hostname; } catch { /* about:blank, srcdoc */ }
      if (host && AD_HOST.test(host)) return;
      if (covered(element, rect, outerContext)) {
        if (inner.behind) see.behindControls++;
        return;
      }
      boundary();
      const label = short(fold(attribute(element, 'title') || attribute(element, 'aria-label') || ''));
      see.writes++;
      out.push(['frame', { ref: refOf(element), url: element.src || '', ...(label && { label }) }]);
      boundary();
      return;
    }
    if (name === 'img' || (role === 'img' && name !== 'svg' && !controlOf(element, name, role, style, context))) {
      imageNode(element, name, box(element), outerContext, out);
      if (name === 'img' && has(element, 'usemap')) mapLinks(element, outerContext, out);
      return;
    }
    if (name === 'svg') imageNode(element, name, box(element), outerContext, out);
    if (name === 'canvas') {
      const rect = box(element);
      const label = fold(attribute(element, 'aria-label') || attribute(element, 'title') || '');
      if (inner.visible && reaches(rect, outer) && (label || rect.width >= 100 && rect.height >= 100) && !context.control) {
        emitControl(element, name, role, ['control', 'canvas'], style, outerContext, inner, out, rect, element);
      }
      return;
    }
    if (name === 'progress' || name === 'meter' || role === 'progressbar' || role === 'meter') {
      const rect = box(element);
      if (inner.visible && reaches(rect, outer)) {
        const value = name === 'progress' ? (element.position >= 0 ? Math.round(element.position * 100) + '%' : '')
          : name === 'meter' ? String(element.value) : fold(attribute(element, 'aria-valuetext') || attribute(element, 'aria-valuenow') || '');
        const label = labelOf(element, name, '', false);
        const hadSpace = see.started;
        if (value || label) {
          inline(out, ['control', { type: name === 'meter' ? 'meter' : 'progress', ...(label && { label }), ...(value && { value }) }], hadSpace, rect);
          written(rect);
          see.shown.add(element);
        }
      }
      if (name === 'progress' || name === 'meter') return;
    }
    if (name === 'label' && !context.control) {
      const control = labelled(element);
      if (control && labelsOf[localName(control)]) {
        if (isShown(control)) inner.muted = control;
        else if (seeThrough(control) && inner.visible && !see.shown.has(control) && !matches(control, ':disabled')) {
          const rect = box(element);
          if (reaches(rect, outer) || elementCount(element)) {
            const shown = rect.width > 1 && rect.height > 1 ? rect : { left: 0, top: 0, right: 0, bottom: 0, width: 0, height: 0 };
            emitControl(control, localName(control), roleOf(control), formLike(control), style, outerContext, inner, out, shown, element);
            if (see.shown.has(control)) inner.muted = control;
          }
        }
      }
    }
    const found = controlOf(element, name, role, style, context);
    if (found && found[0] !== 'editable') {
      const block = context.row ? false : /^(block|flex|grid|list-item|table)$/.test(display) && !/^(input|select|textarea|button)$/.test(name);
      const lines = block && !context.control;
      if (lines) boundary();
      const wrap = lines ? ['block', {}] : out;
      const kind = found[0] === 'control' || context.list ? kindOf(element, name, role, style, context) : '';
      if (kind === 'row') {
        const node = structure(element, name, role, kind, context);
        boundary();
        const controls = see.controls;
        children(element, name, inner, node);
        boundary();
        const first = node.find((cell, i) => i > 1 && cell[0] === 'cell' && cell.length > 2);
        // The cells must stay cells, so the first one with a content stands for the row.
        if (first && (controls === see.controls || found[1] !== 'clickable')) {
          const control = ['control', { type: found[1], ref: refOf(element) }, ...first.splice(2)];
          const states = statesOf(element, name, role, '');
          if (states.length) control[1].state = states;
          first.push(control);
          see.controls++;
        }
        if (node.length > 2) out.push(node);
        return;
      }
      if (kind === 'item' || kind === 'cell') {
        const node = structure(element, name, role, kind, context);
        emitControl(element, name, role, found, style, { ...outerContext, likes: null }, inner, node, box(element), element);
        if (node.length > 2) out.push(node);
        boundary();
        return;
      }
      emitControl(element, name, role, found, style, outerContext, inner, wrap, box(element), element);
      if (lines) {
        if (wrap.length > 2) {
          const only = wrap.length === 3 && wrap[2][1];
          if (only && only.like) wrap[1].like = only.like, delete only.like;
          out.push(wrap);
        }
        boundary();
      }
      return;
    }
    if (style.contentVisibility === 'hidden') return;

    inner.likes = makesBelow(element);
    let kind = kindOf(element, name, role, style, context);
    if (kind === 'table') {
      const data = name !== 'table' || isDataTable(element, role);
      inner.table = data ? 'data' : 'layout';
      if (!data) kind = '';
    }
    if (kind === 'list' || /^(ul|ol|menu)$/.test(name)) inner.list = true;
    else if (kind && kind !== 'item') inner.list = false;
    if (found) kind = 'editable';
    if (kind === 'pre') inner.pre = true;

    const mark = !kind && !inner.pre && MARKS[name];
    if (mark && display === 'inline') {
      const node = ['mark', { type: mark }];
      const hadSpace = see.started && see.space;
      if (hadSpace) see.space = false;
      const started = see.started;
      children(element, name, inner, node);
      if (node.length > 2) inline(out, node, hadSpace, null);
      else see.space = see.space || (hadSpace && started);
      return;
    }
    if (!kind) {
      const rect = () => box(element);
      const like = context.likes && context.likes.get(makeOf(element));
      const atomic = /^(inline-|table-cell)/.test(display) || (context.row && /^(block|flex|grid|inline)/.test(display));
      if (contents || /^(inline|ruby|math|ruby-text)$/.test(display) && !(context.row)) {
        children(element, name, inner, out);
        return;
      }
      if (atomic && !(like && context.row) && rect().height <= 60) {
        see.gap = true;
        children(element, name, inner, out);
        see.gap = true;
        return;
      }
      if (element instanceof SVGElement) {
        see.gap = true;
        children(element, name, inner, out);
        see.gap = true;
        return;
      }
      if (/^table-(row-group|header-group|footer-group)$/.test(display) || name === 'tbody' || name === 'thead' || name === 'tfoot') {
        children(element, name, inner, out);
        if (inner.likes && !out[1].selector) attachSelector(element, inner.likes, out);
        return;
      }
    }
    const node = structure(element, name, role, kind || 'block', context);
    inner.title = titleOf(element, name, kind, node);
    const line = { started: see.started, space: see.space, gap: see.gap, edge: see.edge };
    boundary();
    const text = see.text, controls = see.controls, writes = see.writes;
    if (!kind && /^(preserve|break-spaces)$/.test(inner.space) && !elementCount(element) && /\n|  /.test(textContent(element).trim())) {
      node[0] = 'pre';
      inner.pre = true;
    }
    children(element, name, inner, node);
    boundary();
    node[1][TEXT] = see.text - text;
    if (!kind && node[1].like === 'div' && see.controls === controls) delete node[1].like;  // a paragraph
    if (kind === 'form' && see.controls === controls) node[0] = 'block';
    if (kind === 'list' && node[0] === 'list' && !node.some((child, i) => i > 1 && child[0] === 'item')) node[0] = 'block';
    if (inner.likes) attachSelector(element, inner.likes, node);
    if (kind === 'editable') {
      const attributes = node[1];
      const label = labelOf(element, name, fold(shownText(node)) || ' ', false);
      if (label) attributes.label = label;
      valueOf(element, 'editable', '', attributes);
      delete attributes.value;
      const states = statesOf(element, name, role, '');
      if (states.length) attributes.state = states;
      const rect = box(element);
      if (writes === see.writes && (!inner.visible || !reaches(rect, outer) || covered(element, rect, outerContext))) return;
      if (inner.inert) see.inert++;
      else attributes.ref = refOf(element);
      see.controls++;
      out.push(node);
      return;
    }
    if (REGIONS.has(node[0]) && !node[1].label) {
      let label = fold(attribute(element, 'aria-label') || '') || referred(element, 'aria-labelledby');
      if (label && !plain(shownText(node)).includes(plain(label))) node[1].label = short(label);
    }
    // An empty block ends a line too, if it is in the flow.
    if (writes === see.writes && node[0] !== 'cell' && !node[1].label && (/absolute|fixed/.test(position) || style.float !== 'none')) Object.assign(see, line);
    else out.push(node);
  };

  const structure = (element, name, role, kind, context) => {
    const node = [kind, {}];
    if (context.likes) {
      const make = makeOf(element);
      if (context.likes.has(make)) node[1].like = make;
    }
    if (kind === 'list' && name === 'ol') node[1].type = 'ordered';
    if (kind === 'cell') {
      if (name === 'th' || role === 'columnheader' || role === 'rowheader') node[1].state = ['head'];
      const span = name === 'td' || name === 'th' ? element.colSpan : +attribute(element, 'aria-colspan') || 1;
      if (span > 1) node[1].count = span;
    }
    return node;
  };

  /** A visible <legend> or <caption> that is no more than text: it becomes the label, and is not told again. */
  const titleOf = (element, name, kind, node) => {
    let title = null;
    if (kind === 'group' && name === 'fieldset') {
      for (let child = firstElement(element); child && !title; child = nextElement(child)) if (localName(child) === 'legend') title = child;
    } else if (kind === 'table' && name === 'table') title = element.caption;
    if (!title || see.overlays.size || !isShown(title) || find(title, 'a, button, input, select, textarea, [tabindex]')) return null;
    node[1].label = short(fold(nameFrom(title)), 500);
    return title;
  };

  const attachSelector = (element, makes, node) => {
    const counts = new Map();
    for (let i = 2; i < node.length; i++) {
      const like = typeof node[i] !== 'string' && node[i][1].like;
      if (like) counts.set(like, (counts.get(like) || 0) + 1);
    }
    if (![...counts.values()].some((count) => count >= LIKE)) return;
    node[1].selector = childrenSelector(element, new Map([...makes].filter(([make]) => counts.has(make))));
  };

  // -- tidying ---------------------------------------------------------------------------------------------------------------

  const isBlock = (node) => typeof node !== 'string' && (BLOCK_KINDS.has(node[0]) || (node[0] === 'editable' && node.slice(2).some(isBlock)));
  const bare = (node) => node[0] === 'block' && !node[1].like && !node[1].selector && !node[1].main && !node[1].label && !node[1].ref;

  const trimmed = (list) => {
    let from = 0, to = list.length;
    const blank = (item) => (typeof item === 'string' ? !NOT_BLANK.test(item) : item[0] === 'break');
    while (from < to && blank(list[from])) from++;
    while (to > from && blank(list[to - 1])) to--;
    const found = list.slice(from, to);
    if (found.length && typeof found[0] === 'string') found[0] = found[0].replace(/^ (?! )/, '');  // more than one is indentation
    const end = found.length - 1;
    if (end >= 0 && typeof found[end] === 'string') found[end] = found[end].replace(/ +$/, '');
    return found;
  };

  /** Join texts and single breaks; each run of inline content between blocks is trimmed, and wrapped where asked. */
  const joined = (items, wrap) => {
    const result = [];
    let run = [];
    const flush = () => {
      const found = trimmed(run);
      run = [];
      if (!found.length) return;
      if (wrap) result.push(['block', {}, ...found]);
      else result.push(...found);
    };
    for (const item of items) {
      if (isBlock(item)) { flush(); result.push(item); continue; }
      const previous = run[run.length - 1];
      if (typeof item === 'string') {
        if (typeof previous === 'string') run[run.length - 1] += item;
        else if (item) run.push(item);
      } else if (item[0] === 'break') {
        if (previous !== undefined && !(typeof previous !== 'string' && previous[0] === 'break')) {
          if (typeof previous === 'string') run[run.length - 1] = previous.replace(/ +$/, '');
          run.push(item);
        }
      } else run.push(item);
    }
    flush();
    return result;
  };

  const LINE_END = [['break', {}]];

  const flattened = (items, out) => {
    for (const item of items) {
      if (typeof item === 'string' || !(BLOCK_KINDS.has(item[0]) && item[0] !== 'frame')) out.push(item);
      else { out.push(['break', {}]); flattened(item.slice(2), out); out.push(['break', {}]); }
    }
    return out;
  };

  /** What becomes of a node: nothing, itself, or its children when it has no meaning of its own. */
  const tidied = (node) => {
    if (node[0] === 'muted') {
      return see.shown.has(node[1][TARGET]) ? [] : [' ' + node[2] + ' '];
    }
    const kind = node[0];
    let items = [];
    for (let i = 2; i < node.length; i++) {
      const child = node[i];
      if (typeof child === 'string') items.push(child);
      else for (const each of tidied(child)) items.push(each);
    }
    if (kind === 'pre') {
      const texts = items.flatMap((item) => typeof item === 'string' || !isBlock(item) ? [item] : ['\n', ...item.slice(2), '\n']);
      const found = [];
      for (const item of texts) {
        const end = found.length - 1;
        if (item === '\n' && (end < 0 || (typeof found[end] === 'string' && found[end].endsWith('\n')))) continue;
        if (typeof item === 'string' && typeof found[end] === 'string') found[end] += item;
        else found.push(item);
      }
      if (typeof found[0] === 'string') found[0] = found[0].replace(/^[ \t]*\n/, '');
      const end = found.length - 1;
      if (typeof found[end] === 'string') found[end] = found[end].trimEnd();
      return found.some((item) => typeof item !== 'string' || NOT_BLANK.test(item)) ? [[kind, node[1], ...found]] : LINE_END;
    }
    if (kind === 'mark' ? items.some(isBlock) : CONTROL_KINDS.test(kind)) {
      const only = items.filter((item) => typeof item !== 'string' || NOT_BLANK.test(item));
      if (only.length === 1 && typeof only[0] !== 'string' && /^h[1-6]$/.test(only[0][0]) && kind !== 'mark') {
        return [[only[0][0], {}, [kind, node[1], ...joined(flattened(only[0].slice(2), []), false)]]];
      }
      // Controls in a control, which HTML does not allow but scripts make, follow it.
      const nested = [];
      items = flattened(items, []).filter((item) => {
        const own = typeof item === 'string' || !CONTROL_KINDS.test(item[0]);
        if (!own) nested.push(' ', item);
        return own;
      });
      const found = joined(items, false);
      if (kind === 'mark' && !found.length) return nested;
      const result = [[kind, node[1], ...found], ...nested];
      if (items.length) {  // what begins or ends with a block does so for the line around it
        const start = items[0], end = items[items.length - 1];
        if (start[0] === 'break') result.unshift(['break', {}]);
        else if (start[0] === ' ') result.unshift(' ');
        if (end[0] === 'break') result.push(['break', {}]);
        else if (typeof end === 'string' && /\s$/.test(end)) result.push(' ');
      }
      return result;
    }
    const blocks = items.some(isBlock);
    if (bare(node)) {
      if (blocks) return joined(items, true);
      const found = joined(items, false);
      return found.length ? [['block', node[1], ...found]] : LINE_END;
    }
    let found = joined(items, false);
    if (found.length === 1 && typeof found[0] !== 'string' && bare(found[0])) found = found[0].slice(2);
    if (BLOCK_KINDS.has(kind)) {
      const empty = !found.length && !node[1].label && !/^(cell|frame|more)$/.test(kind);
      const cellsOnly = kind === 'row' && found.every((cell) => cell[0] === 'cell' && cell.length === 2);
      if (empty || cellsOnly) return LINE_END;
    } else if (kind === 'mark' && !found.length) return [];

    return [[kind, node[1], ...found]];
  };

  /** Mark the main content: <main>, the only <article>, or the deepest block with more than 60 % of the text. */
  const markMain = (root) => {
    const mains = [], articles = [];
    const visit = (node) => {
      for (let i = 2; i < node.length; i++) {
        const child = node[i];
        if (typeof child === 'string') continue;
        if (child[0] === 'main') mains.push(child);
        else if (child[0] === 'article') articles.push(child);
        if (BLOCK_KINDS.has(child[0])) visit(child);
      }
    };
    visit(root);
    const size = (node) => node[1][TEXT] || 0;
    mains.sort((a, b) => size(b) - size(a));
    if (mains.length) { mains[0][1].main = true; return; }
    if (articles.length === 1 && size(articles[0]) > 0.3 * see.text) { articles[0][1].main = true; return; }
    if (see.text < 200) return;
    let at = root;
    for (let next = at; next;) {
      next = null;
      for (let i = 2; i < at.length; i++) {
        const child = at[i];
        if (typeof child !== 'string' && /^(block|item|article|aside|form|group|table|row|cell|dialog|quote)$/.test(child[0]) && size(child) > 0.6 * see.text) next = child;
      }
      if (next && !/^(table|row)$/.test(next[0])) see.best = next;
      if (next) at = next;
    }
    if (see.best) see.best[1].main = true;
  };

  const sizeOf = (node) => {
    if (typeof node === 'string') return node.length + 3;
    const { like, label, url, value, selector, options } = node[1];
    let size = 24 + (like || '').length + (label || '').length + (url || '').length + (value || '').length + (selector || '').length +
      (options ? options.join('     ').length : 0);
    for (let i = 2; i < node.length; i++) size += sizeOf(node[i]);
    return size;
  };

  const thinned = (node) => {
    const seen = new Map();
    const result = [node[0], node[1]];
    const dropped = new Map();
    for (let i = 2; i < node.length; i++) {
      const child = node[i];
      const like = typeof child !== 'string' && child[1].like && child[0] + ' ' + child[1].like;
      if (like) {
        const count = (seen.get(like) || 0) + 1;
        seen.set(like, count);
        if (count > KEPT_LIKE) {
          if (!dropped.has(like)) {
            const more = ['more', { count: 0, like: child[1].like, ...(node[1].selector && { selector: node[1].selector }) }];
            dropped.set(like, more);
            result.push(more);
          }
          dropped.get(like)[1].count++;
          continue;
        }
      }
      result.push(typeof child === 'string' ? child : thinned(child));
    }
    return result;
  };

  const cutAt = (node, room, lost) => {
    const result = [node[0], node[1]];
    for (let i = 2; i < node.length; i++) {
      const child = node[i];
      if (room.left <= 0) { lost.nodes++; lost.text += typeof child === 'string' ? child.length : fold(shownText(child)).length; continue; }
      if (typeof child === 'string') {
        if (child.length > room.left) { lost.text += child.length - room.left; result.push(short(child, Math.max(1, room.left))); }
        else result.push(child);
        room.left -= child.length + 3;
      } else {
        const size = sizeOf(child);
        if (size <= room.left) { result.push(child); room.left -= size; }
        else result.push(cutAt(child, room, lost));
      }
    }
    return result;
  };

  // -- commands ------------------------------------------------------------------------------------------------------------------

  const look = (after) => {
    last = Math.max(last, after);
    const html = documentElement(document);
    const remarks = [];
    see = {
      focus: focused(), range: Document.prototype.createRange.call(document), tests: 0, testing: 0, writes: 0, text: 0, controls: 0, elements: 0, inert: 0,
      behindText: 0, behindControls: 0, overlays: new Set(), shown: new Set(), counts: new Map(), root: null, best: null,
      started: false, space: false, gap: false, edge: null,
    };
    if (see.focus === bodyOf(document) || see.focus === html) see.focus = null;
    let root = ['block', {}];
    if (html) {
      see.root = rootFrame();
      see.bodyScrolls = styleOf(html).overflow !== 'visible';
      see.overlays = findOverlays();
      const context = {
        flow: see.root, abs: see.root, fixed: see.root, visible: true, pointer: false, space: 'collapse', behind: see.overlays.size > 0,
        control: false, link: false, pre: false, muted: null, title: null, list: false, table: '', likes: null, inert: false, depth: 0, row: false,
      };
      elementNode(html, context, root);
      markMain(root);
      root[1].label = 'page';  // keeps the root from being dissolved
      root = tidied(root)[0] || ['block', {}];
      delete root[1].label;
      if (root.length === 3 && typeof root[2] !== 'string' && root[2][0] === 'block' && !root[1].selector && !root[2][1].ref) root = root[2];
    }
    if (/^image\//.test(document.contentType) && root.length === 2) {
      root.push(['image', { label: short(location.pathname.split('/').pop()) || 'image' }]);
    }
    const number = (value) => value.toLocaleString('en-US');
    if (see.behindText || see.behindControls) {
      remarks.push(`an overlay covers the page: ${number(see.behindText)} characters and ${number(see.behindControls)} controls behind it are not shown`);
    }
    if (see.inert) remarks.push(`${number(see.inert)} controls are inert: they cannot be used at the moment`);
    if (sizeOf(root) > BUDGET) {
      root = thinned(root);
      if (sizeOf(root) > BUDGET) {
        const lost = { nodes: 0, text: 0 };
        root = cutAt(root, { left: BUDGET }, lost);
        if (lost.nodes || lost.text) {
          root.push(['more', { count: lost.nodes }]);
          remarks.push(`the page is too long: ${number(lost.text)} characters at its end are not shown`);
        }
      }
    }
    const statistics = { elements: see.elements, tests: see.tests };
    see = null;
    return { url: location.href, title: fold(getter(Document, 'title')(document)), root, remarks, last, statistics };
  };

  // -- watching --------------------------------------------------------------------------------------------------------------------

  let watching = null;

  const SEEN = { visibilityProperty: true, opacityProperty: true };
  const canBeSeen = (element) => {
    if (!visibleNow(element, SEEN)) return false;
    const rect = box(element);
    return rect.width > 1 && rect.height > 1 && rect.bottom > 0 && rect.right > 0;
  };

  /** Texts below a node with their elements, shadow roots included. */
  const textsBelow = (node, most, found = []) => {
    const type = nodeType(node);
    if (found.length >= most) return found;
    if (type === 3) {
      if (NOT_BLANK.test(dataOf(node))) {
        const parent = above(node);
        if (parent) found.push([node, parent]);
      }
      return found;
    }
    if (type === 1 && SKIPPED.has(localName(node))) return found;
    const shadow = type === 1 && openShadow(node);
    if (shadow) textsBelow(shadow, most, found);
    for (let child = firstChild(node); child; child = nextSibling(child)) textsBelow(child, most, found);
    return found;
  };

  const blockOf = (element, most) => {
    let at = element;
    while (isHtml(at) && /^(inline|contents)$/.test(styleOf(at).display)) {
      const parent = above(at);
      if (!parent || fold(innerText(parent) || '').length > most) break;
      at = parent;
    }
    return at;
  };

  const keep = (element, text) => {
    const state = watching;
    text = fold(text);
    if (!text || text.length > 200) text = short(text, 200);
    if (!text || state.kept.length >= 20 || state.kept.some((each) => each.text === text)) return;
    const before = state.kept.filter((each) => each.element.deref() === element);
    // A clock or a counter changes all the time; only its last texts matter.
    if (before.length >= 2 && !matches(element, '[aria-live], [aria-live] *, [role=status], [role=alert], [role=log]')) {
      before[before.length - 1].text = text;
      return;
    }
    state.kept.push({ element: new WeakRef(element), text });
  };

  const inspect = (target) => {
    const state = watching;
    if (!isConnected(target)) return 'gone';
    const fresh = [];
    let all = 0, hidden = 0;
    for (const [node, parent] of textsBelow(target, 300)) {
      if (!canBeSeen(parent)) { hidden++; continue; }
      all++;
      const text = dataOf(node);
      if (state.known.get(node) === text) continue;
      state.known.set(node, text);
      fresh.push(parent);
    }
    if (fresh.length) {
      const whole = nodeType(target) === 1 && isHtml(target) && target !== bodyOf(document) ? fold(innerText(target)) : '';
      if (fresh.length === all && whole && whole.length <= 200) keep(target, whole);
      else {
        for (const block of new Set(fresh.map((parent) => blockOf(parent, 200)))) {
          keep(block, isHtml(block) ? innerText(block) : textContent(block));
        }
      }
    }
    return hidden ? 'hidden' : 'shown';
  };

  const LOOKED_AT = 3000;  // milliseconds that a changed element is looked at while some of it is hidden
  const frameTick = () => {
    const state = watching;
    if (!state) return;
    const now = performance.now();
    for (const [target, since] of state.candidates) {
      const found = inspect(target);
      if (found === 'gone' || found === 'shown' && now - since > 100 || now - since > LOOKED_AT) state.candidates.delete(target);
    }
    state.ticking = state.candidates.size > 0;
    if (state.ticking) requestAnimationFrame(frameTick);
  };

  const noticed = (records) => {
    const state = watching;
    if (!state) return;
    state.changed = performance.now();
    const add = (node) => {
      if (state.candidates.size < 200) state.candidates.set(node, state.changed);
    };
    for (const record of records) {
      if (record.type === 'childList') {
        for (const node of record.addedNodes) {
          if (nodeType(node) === 1) {
            add(node);
            observeShadows(node);
          } else if (nodeType(node) === 3) add(node);
        }
      } else if (record.type === 'characterData') add(record.target);
      else if (record.target !== documentElement(document) && record.target !== bodyOf(document)) add(record.target);
      else if (state.candidates.size < 200) add(bodyOf(document) || record.target);
    }
    for (const target of state.candidates.keys()) if (state.candidates.get(target) === state.changed) inspect(target);
    if (!state.ticking && state.candidates.size) {
      state.ticking = true;
      requestAnimationFrame(frameTick);
    }
  };

  const OBSERVED = { subtree: true, childList: true, characterData: true, attributes: true };
  const observeShadows = (node) => {
    const shadow = openShadow(node);
    if (shadow) {
      watching.observer.observe(shadow, OBSERVED);
      for (let child = shadow.firstElementChild; child; child = nextElement(child)) observeShadows(child);
    }
    for (let child = firstElement(node); child; child = nextElement(child)) observeShadows(child);
  };

  const watch = () => {
    if (watching) watching.observer.disconnect();
    watching = { observer: new MutationObserver(noticed), candidates: new Map(), kept: [], known: new WeakMap(), changed: performance.now(), ticking: false };
    watching.observer.observe(document, OBSERVED);
    const html = documentElement(document);
    if (!html) return;
    observeShadows(html);
    for (const [node, parent] of textsBelow(html, 20_000)) if (canBeSeen(parent)) watching.known.set(node, dataOf(node));
  };

  const watched = () => {
    if (!watching) return null;
    noticedNow();
    const brief = [];
    let page = null;
    for (const { element, text } of watching.kept) {
      const at = element.deref();
      if (at && isConnected(at)) {
        if (canBeSeen(at) && fold(isHtml(at) ? innerText(at) : textContent(at)).includes(text.replace(/…$/, ''))) continue;
      } else {
        page = page === null ? fold(bodyOf(document) && isHtml(bodyOf(document)) ? innerText(bodyOf(document)) : '') : page;
        if (page.includes(text)) continue;
      }
      brief.push(text);
    }
    return { quiet: (performance.now() - watching.changed) / 1000, brief };
  };
  const noticedNow = () => {
    const records = watching.observer.takeRecords();
    if (records.length) noticed(records);
  };

  const run = (selector) => {
    const [command, argument] = selector.trim().split(/\s+/);
    if (command === 'ref') {
      const weak = elements.get(Number(argument));
      const element = weak && weak.deref();
      return element && isConnected(element) ? [element] : [];
    }
    let answer = null;
    if (command === 'look') answer = look(Number(argument));
    else if (command === 'ping') answer = true;
    else if (command === 'watch') { watch(); answer = true; }
    else if (command === 'watched') answer = watched();
    const carrier = newElement('pre');
    Object.getOwnPropertyDescriptor(Node.prototype, 'textContent').set.call(carrier, JSON.stringify(answer));
    return [carrier];
  };

  return {
    query: (root, selector) => run(selector)[0] || null,
    queryAll: (root, selector) => run(selector),
  };
})()
