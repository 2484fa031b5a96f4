// The eyes: turns the document into the tree that gad/core/page.py describes.
//
// The walk goes down the flat tree with a place: what is known at that point of how things show (what clips them, how
// white space counts) and of what they are in (a control, a list, a table). Nodes are arrays, [kind, attributes, child,
// ...], as in the JSON.

const BUDGET = 1_500_000;    // characters of JSON
const LIKE = 6;              // so many siblings of one make are a list
const DEEPEST = 600;         // levels of the DOM that are walked (parsers make 512); below, text without controls
const MOST_ELEMENTS = 150_000;
const MOST_CLICKABLE = 500;  // characters on what is a control by its looks only
const MOST_COLUMNS = 1000;
const MOST_QUERIES = 400;    // that look for short selectors

let see = null;  // the state of the look that is under way

// -- texts -----------------------------------------------------------------------------------------------------------

// How texts join: `started` tells whether the line has begun, `space` that white space came since the last text, `gap`
// that a box ended or began, so that a space is needed if the texts are seen apart, `edge` where the last text ended.
const boundary = () => { see.started = false, see.space = false, see.gap = false, see.edge = null; };
const written = (rect) => {
  see.started = true, see.space = false, see.gap = false, see.edge = rect;
  see.writes++;
};

const apart = (rect) => {
  const { edge } = see;
  if (!edge || !rect) return true;
  const beside = Math.min(edge.bottom, rect.bottom) - Math.max(edge.top, rect.top) >=
    0.3 * Math.min(edge.height, rect.height);
  return !beside || Math.min(Math.abs(rect.left - edge.right), Math.abs(edge.left - rect.right)) > 1.5;
};

const joint = (rect) => see.started && (see.space || (see.gap && apart(rect))) ? ' ' : '';

const push = (out, text) => {
  const end = out.length - 1;
  if (end >= 2 && typeof out[end] === 'string') out[end] += text;
  else if (text) out.push(text);
};

const lineEnd = (out) => {
  out.push(['break', {}]);
  boundary();
};

const KEEPS = /^(preserve|break-spaces)$/;  // values of white-space-collapse that keep spaces

const emitText = (out, data, place, rect) => {
  if (place.pre) {
    push(out, data.replace(/\r\n?/g, '\n'));
    written(rect);
    return;
  }
  const keeps = KEEPS.test(place.space);
  if (keeps || place.space === 'preserve-breaks') {
    cleaned(data).split(/\r\n?|\n/).forEach((line, index) => {
      if (index) lineEnd(out);
      emitLine(out, line, keeps, rect);
    });
  } else emitLine(out, data, false, rect);
};

const emitLine = (out, line, keeps, rect) => {
  if (!keeps && /^[ \t\n\r\f\u00a0]/.test(line)) see.space = true;
  const text = keeps ? line.replace(/\u00a0/g, ' ').trimEnd() : fold(line);
  if (!text) return;
  push(out, (keeps && /^\s/.test(text) ? '' : joint(rect)) + text);
  written(rect);
  if (/[ \t\n\r\f\u00a0]$/.test(line)) see.space = true;
};

const emitBlank = (out, data, place) => {
  if (place.pre) {
    if (place.visible) push(out, data);
  } else if (/^(preserve|break)/.test(place.space) && /\n/.test(data) && see.started) lineEnd(out);
  else if (KEEPS.test(place.space) && place.visible && !place.muted) push(out, data.replace(/[\t\u00a0]/g, ' '));
  else if (data) see.space = true;
};

const textNode = (node, parent, place, out) => {
  const data = dataOf(node);
  if (!NOT_BLANK.test(data)) {
    emitBlank(out, data, place);
    return;
  }
  if (!place.visible) return;
  see.range.selectNodeContents(node);
  const rect = see.range.getBoundingClientRect();
  if (!reaches(rect, place.flow)) return;
  if (covered(parent, rect, place.flow, place.behind)) {
    if (place.behind) see.behindText += fold(data).length;
  } else if (place.muted) {
    out.push(['muted', { [TARGET]: place.muted }, fold(data)]);
    see.writes++;
  } else {
    if (!place.link) see.text += data.length;
    emitText(out, data, place, rect);
  }
};

const children = (element, name, place, out) => {
  const visit = (node) => {
    const type = nodeType(node);
    if (type === 3 || type === 4) textNode(node, element, place, out);
    else if (type === 1) elementNode(node, place, out);
  };
  const assigned = name === 'slot' ? element.assignedNodes() : [];
  if (assigned.length) assigned.forEach(visit);
  else if (name === 'details' && !has(element, 'open')) {
    for (let child = firstElement(element); child; child = nextElement(child)) {
      if (localName(child) !== 'summary') continue;
      visit(child);
      return;
    }
  } else {
    const first = firstChild(openShadow(element) || element);
    for (let node = first; node && see.elements <= MOST_ELEMENTS; node = nextSibling(node)) visit(node);
  }
};

/** Put something that stands in the line into `out`, with the space that belongs before it. */
const inline = (out, node, spaced) => {
  const leads = typeof node[2] === 'string' && node[2].startsWith(' ');
  if (spaced || leads) push(out, ' ');
  if (leads) node[2] = node[2].slice(1);
  if (node[2] === '') node.splice(2, 1);
  out.push(node);
};

// -- lists of like things --------------------------------------------------------------------------------------------

// Prose is no list: its paragraphs are alike, but none stands for the others. Cells are thinned with their row.
const PROSE = words('p h1 h2 h3 h4 h5 h6 br hr pre blockquote dt dd td th span b i em strong option');
const VARIES = /\d|^(odd|even|first|last|alt|alternate|active|current|selected|open|hover|focus)$/i;

/** What siblings have in common: their name and those classes that do not vary. */
const makeOf = (element) => {
  const name = localName(element);
  if (name === 'li' || name === 'tr') return name;  // these are always items of one list
  return short([name, ...classesOf(element).filter((word) => !VARIES.test(word)).sort()].join('.'), 100);
};

const makesIn = (element) => {
  if (elementCount(element) < LIKE) return null;
  const counts = new Map();
  for (let child = firstElement(element); child; child = nextElement(child)) {
    if (PROSE.has(localName(child))) continue;
    const make = makeOf(child);
    counts.set(make, (counts.get(make) || 0) + 1);
  }
  const makes = new Set([...counts.keys()].filter((make) => counts.get(make) >= LIKE));
  return makes.size ? makes : null;
};

const setLike = (element, place, attributes) => {
  const make = place.likes && makeOf(element);
  if (make && place.likes.has(make)) attributes.like = make;
};

/** How many elements a selector finds; -1 when too much has been asked. */
const countOf = (root, selector) => {
  let counts = see.counts.get(root);
  if (!counts) see.counts.set(root, counts = new Map());
  if (!counts.has(selector)) counts.set(selector, see.queries++ < MOST_QUERIES ? findAll(root, selector).length : -1);
  return counts.get(selector);
};

/** Give a node that holds like nodes a short CSS selector that finds just their elements; none when there is none. */
const setSelector = (element, node) => {
  const counts = new Map();
  for (const child of node.slice(2)) {
    const { like } = typeof child === 'string' ? {} : child[1];
    if (like) counts.set(like, (counts.get(like) || 0) + 1);
  }
  const [make, most] = [...counts].reduce((best, each) => each[1] > best[1] ? each : best, ['', 0]);
  if (most < LIKE) return;
  const root = rootNode(element);
  let count = 0, shared = null;
  for (let child = firstElement(element); child; child = nextElement(child)) {
    if (makeOf(child) !== make) continue;
    count++;
    const classes = classesOf(child);
    shared = shared ? shared.filter((word) => classes.includes(word)) : classes;
  }
  const steps = [make.split('.')[0], ...shared.slice(0, 3).map((word) => '.' + CSS.escape(word))];
  const finds = (selector) => selector.length <= 80 && countOf(root, selector) === count;
  for (let at = element, level = 0; level < 4 && at && nodeType(at) === 1; at = parentNode(at), level++) {
    const id = attribute(at, 'id');
    const names = [...(id ? ['#' + CSS.escape(id)] : []), ...classesOf(at).map((word) => '.' + CSS.escape(word))];
    const own = names.find((each) => each.length < 40 && countOf(root, each) === 1);
    const found = own && steps.map((step) => own + (level ? ' ' : ' > ') + step).find(finds);
    if (found) {
      node[1].selector = found;
      return;
    }
  }
  const found = steps.slice(1).find(finds);
  if (found) node[1].selector = found;
};

// -- controls --------------------------------------------------------------------------------------------------------

// Native boxes are often transparent or hidden, below something styled that stands for them.
const seeThrough = (element) => {
  const name = localName(element);
  return name === 'select' || (name === 'input' && /^(checkbox|radio|file|range)$/.test(element.type));
};
const seeThroughKind = (element) => localName(element) === 'select' ? ['select', ''] : ['input', element.type];

const isShown = (element) => {
  const rect = box(element);
  return drawn(rect) && visibleNow(element, SEEN) && !clippedAway(styleOf(element)) &&
    rect.right > see.root.cl && rect.bottom > see.root.ct;
};

/** Emit those controls in a transparent element that can be acted on where they lie; others may be by their label. */
const transparent = (element, inner, place, out) => {
  const found = seeThrough(element) ? [element]
    : elementCount(element) < 6 ? [...findAll(element, 'input, select')].filter(seeThrough) : [];
  for (const control of found) {
    if (see.told.has(control) || [...control.labels].some(isShown)) continue;
    const rect = box(control), style = styleOf(control);
    if (rect.width < 8 || rect.height < 8 || style.visibility !== 'visible' || style.pointerEvents === 'none') continue;
    const [middle] = points(rect, place.flow);
    if (!reaches(rect, place.flow) || (middle && hitAt(...middle) !== control)) continue;
    const own = { ...inner, visible: true, outer: place.flow };
    emitControl(control, seeThroughKind(control), style, own, { ...place, likes: null }, out, rect);
  }
};

const shownText = (node) => node.slice(2).map((child) => {
  if (typeof child === 'string') return child;
  if (child[0] === 'muted') return '';
  if (child[0] === 'image') return ` ${child[1].label} `;
  return BLOCK_KINDS.has(child[0]) || child[0] === 'break' ? ` ${shownText(child)} ` : shownText(child);
}).join('');

/** Emit what can be acted on. `place` is where it stands, `inner` the place in it; `target` is what is acted on. */
const emitControl = (element, [kind, type], style, inner, place, out, rect, target = element) => {
  const name = localName(element), role = roleOf(element);
  const attributes = {};
  const node = [kind, attributes];
  const lonely = !inner.visible || !drawn(rect) || !reaches(rect, inner.outer);  // it can only be seen by its content
  const unseen = lonely || covered(target, rect, inner.outer, inner.behind);
  const leave = () => { if (inner.behind && !lonely) see.behindControls++; };
  const holds = HOLDERS.has(name);
  if (holds && unseen) return leave();
  const { controls, space, started, gap, edge } = see;
  const spaced = joint(rect) !== '';
  see.space = false;
  const clickable = type === 'clickable';
  const boxed = /^(inline-|flex|grid|block)/.test(style.display);
  if (holds) see.gap = false;
  else {
    see.gap ||= boxed;
    children(element, name, {
      ...inner, control: place.control || !clickable, link: place.link || kind === 'link',
      pointer: place.pointer || clickable, likes: null, muted: null,
    }, node);
    see.gap ||= boxed;
  }
  if (name === 'input' && kind === 'button' && element.type !== 'image') {
    const text = fold(element.value || { submit: 'Submit', reset: 'Reset' }[element.type] || '');
    if (text) node.push(short(text));
  }
  const nested = see.controls - controls;
  let shown = fold(shownText(node));
  // What looks clickable around other controls, or around much of the page, says nothing that these do not say.
  if (clickable && (nested > (has(element, 'onclick') ? 3 : 0) || shown.length > MOST_CLICKABLE)) {
    if (spaced && node.length === 2) see.space = true;
    else if (spaced) push(out, ' ');
    for (const child of node.slice(2)) typeof child === 'string' ? push(out, child) : out.push(child);
    return;
  }
  if (!shown && !nested && unseen) {
    Object.assign(see, { space, started, gap, edge });
    return leave();
  }
  if (!shown && !nested && !holds) {
    shown = pseudoText(element);
    if (shown) node.push(shown);
  }
  if (clickable && !shown && (rect.width < 6 || rect.height < 6 || (rect.width > 400 && rect.height > 300))) return;
  if (inner.behind && unseen) return leave();
  let label = labelOf(element, name, shown);
  if (!label && !shown && (!holds || kind === 'button')) label = guessed(element);
  if (!label && type === 'file' && above(element)) label = short(fold(nameFrom(above(element))), 60);
  if (type) attributes.type = type;
  if (label) attributes.label = label;
  const url = name === 'a' && hrefOf(element);
  if (url) attributes.url = url;
  if (kind !== 'button' && kind !== 'link') setValue(element, name, attributes);
  if (kind === 'control' && attributes.value && attributes.value === shown) delete attributes.value;
  if (PROGRESS.has(type) && !label && !attributes.value && !shown) return;
  const states = statesOf(element, name, role);
  if (inner.inert) {
    if (!states.includes('disabled')) states.push('disabled');
    see.inert++;
  } else if (!PROGRESS.has(type)) attributes[REF] = target;
  if (states.length) attributes.state = states;
  see.controls++;
  see.told.add(element);
  setLike(element, place, attributes);
  inline(out, node, spaced);
  if (holds || !shown || !see.started) written(rect);
};

const imageNode = (element, name, inner, out) => {
  const title = name === 'svg' && find(element, 'title');
  const label = short((name === 'img' && named(element, 'alt')) || named(element, 'aria-label') ||
    referred(element, 'aria-labelledby') || (title && parentNode(title) === element ? fold(textContent(title)) : '') ||
    (name === 'svg' || inner.control ? '' : named(element, 'title')));
  const rect = box(element);
  if (label && rect.width >= 3 && rect.height >= 3 && inner.visible && reaches(rect, inner.outer) &&
    !covered(element, rect, inner.outer, inner.behind)) {
    inline(out, ['image', { label }], joint(rect) !== '');
    written(rect);
  }
  const map = has(element, 'usemap') && reaches(rect, inner.outer) &&
    find(document, `map[name="${CSS.escape(attribute(element, 'usemap').slice(1))}"]`);
  for (const area of map ? findAll(map, 'area[href]') : []) {
    const told = labelOf(area, 'area', '') || guessed(area);
    inline(out, ['link', { [REF]: area, label: told, url: hrefOf(area) }], see.started);
    see.controls++;
    written(null);
  }
};

const frameNode = (element, inner, out) => {
  const rect = box(element);
  if (!inner.visible || rect.width < 20 || rect.height < 20 || !reaches(rect, inner.outer)) return;
  let host = '';
  try { host = new URL(element.src).hostname; } catch { /* about:blank, srcdoc */ }
  if (AD_HOST.test(host)) return;
  if (covered(element, rect, inner.outer, inner.behind)) {
    if (inner.behind) see.behindControls++;
    return;
  }
  boundary();
  see.writes++;
  const label = short(named(element, 'title') || named(element, 'aria-label'));
  out.push(['frame', { [REF]: element, url: short(element.src || '', LONGEST_URL), ...(label && { label }) }]);
  boundary();
};

/** A label that names a control: its text is not told again, and a control that is hidden is told in its place. */
const labelFor = (element, style, inner, place, out) => {
  const control = element.control;
  if (!control || !FIELDS.has(localName(control))) return;
  if (isShown(control)) inner.muted = control;
  else if (seeThrough(control) && inner.visible && !see.told.has(control) && !matches(control, ':disabled')) {
    emitControl(control, seeThroughKind(control), style, inner, place, out, boxOf(element, style), element);
    if (see.told.has(control)) inner.muted = control;
  }
};

/** Emit a control with what is around it: a block, an item or a cell of its own. */
const controlNode = (element, name, role, found, style, inner, place, out) => {
  const kind = found[0] === 'control' || place.list ? kindOf(element, name, role, place) : '';
  const rect = boxOf(element, style);
  const block = !FIELDS.has(name) && !place.row && !place.control &&
    /^(block|flex|grid|list-item|table)$/.test(style.display);
  if (block || kind === 'row') boundary();
  const node = structure(element, name, role, /^(row|item|cell)$/.test(kind) ? kind : 'block', place);
  if (kind === 'row') {
    const { controls } = see;
    children(element, name, inner, node);
    alignRow(node, place.table);
    const first = node.find((cell, at) => at > 1 && cell[0] === 'cell' && cell.length > 2);
    // The cells must stay cells, so the first one with a content stands for the row.
    if (first && (controls === see.controls || found[1] !== 'clickable')) {
      const state = statesOf(element, name, role);
      const attributes = { type: found[1], [REF]: element, ...(state.length && { state }) };
      first.push(['control', attributes, ...first.splice(2)]);
      see.controls++;
    }
  } else {
    const alone = block || node[0] !== 'block';
    emitControl(element, found, style, inner, alone ? { ...place, likes: null } : place, alone ? node : out, rect);
    if (!alone) return;
  }
  if (node.length > 2) out.push(node);
  boundary();
};

// -- everything else -------------------------------------------------------------------------------------------------

/** Whether a table holds data; else it only lays out. */
const isDataTable = (table, role) => {
  if (role === 'presentation' || role === 'none') return false;
  if (role || table.caption || table.tHead) return true;
  const heavy = 'table, form, ul, ol, h1, h2, h3, h4, h5, h6, iframe, fieldset';
  const rows = [...table.rows].slice(0, 50);
  const cells = rows.flatMap((row) => [...row.cells]);
  if (cells.some((cell) => localName(cell) === 'th')) return !find(table, 'td table, td form');
  return rows.length > 1 && rows.some((row) => row.cells.length > 1) &&
    !cells.some((cell) => find(cell, heavy) || (elementCount(cell) > 4 && find(cell, 'p, div')));
};

/** A visible <legend> or <caption> that is no more than text: it becomes the label, and is not told again. */
const captionOf = (element, kind) => {
  let caption = null;
  if (kind === 'table') caption = element.caption;
  for (let at = kind === 'group' ? firstElement(element) : null; at && !caption; at = nextElement(at)) {
    if (at instanceof HTMLLegendElement) caption = at;
  }
  const simple = caption && !see.overlays.size && isShown(caption) &&
    !find(caption, 'a, button, input, select, textarea, [tabindex]');
  return simple ? caption : null;
};

const structure = (element, name, role, kind, place) => {
  const attributes = {};
  const node = [kind, attributes];
  setLike(element, place, attributes);
  if (kind === 'list' && name === 'ol') attributes.type = 'ordered';
  if (kind === 'cell') {
    if (name === 'th' || role === 'columnheader' || role === 'rowheader') attributes.state = ['head'];
    const span = element.colSpan || +attribute(element, 'aria-colspan');
    if (span > 1) attributes.count = span;
    attributes[ROWS] = element.rowSpan || 1;
  }
  return node;
};

/** Put empty cells where cells of the rows above reach down, so that all cells stand in their columns. */
const alignRow = (row, { spans }) => {
  const cells = [];
  let column = 0;
  const skip = () => {
    const from = column;
    for (; spans[column] > 0; column++) spans[column]--;
    if (column > from) cells.push(['cell', column > from + 1 ? { count: column - from } : {}]);
  };
  for (const cell of row.splice(2)) {
    skip();
    cells.push(cell);
    const wide = cell[0] === 'cell' ? cell[1].count || 1 : 0;
    for (let i = 0; i < wide && column < MOST_COLUMNS; i++) spans[column++] = cell[1][ROWS] - 1;
  }
  skip();
  row.push(...cells);
};

/** The frame of what a box out of the flow is placed in: the next box around it that is positioned or transformed. */
const frameAround = (place, fixed) => {
  for (let at = place; at.style; at = at.parent) {
    const { position, transform, filter, perspective, contain, willChange, clipPath } = at.style;
    if ((position !== 'static' && !fixed) || transform !== 'none' || filter !== 'none' || perspective !== 'none' ||
      clipPath !== 'none' || /paint|layout|strict|content/.test(contain) || /transform|filter/.test(willChange)) {
      return at.flow;
    }
  }
  return fixed ? see.fixed : see.root;
};

/** The place in an element: `outer` clips its own box and `flow` its content. */
const placeIn = (element, name, style, place) => {
  const { position, display, overflow } = style;
  let outer = place.flow;
  if (position === 'absolute' || position === 'fixed') {
    const fixed = position === 'fixed';
    const onTop = matches(element, ':modal, :popover-open');
    outer = frameAround(onTop ? see.place : place, fixed);
    const rect = outer === see.fixed && box(element);
    if (rect && drawn(rect) && rect.top >= innerHeight) outer = NOTHING;
  }
  if (clippedAway(style)) outer = NOTHING;
  let flow = outer;
  const own = display !== 'inline' && display !== 'contents' && name !== 'html' && (name !== 'body' || see.bodyScrolls);
  if (overflow !== 'visible' && own) flow = innerFrame(element, style, outer, overflow);
  return {
    parent: place, style, outer, flow, visible: style.visibility === 'visible', pointer: style.cursor === 'pointer',
    space: style.whiteSpaceCollapse, caption: place.caption, behind: place.behind && !see.overlays.has(element),
    control: place.control, link: place.link, pre: place.pre, muted: place.muted, list: place.list, table: place.table,
    likes: null, inert: place.inert || has(element, 'inert'), depth: place.depth + 1, row: /flex|grid/.test(display),
  };
};

const elementNode = (element, place, out) => {
  const name = localName(element);
  if (SKIPPED.has(name) || isAd(element) || element === place.caption) return;
  see.elements++;
  const style = styleOf(element);
  const { display } = style;
  if (display === 'none') return;
  if (place.depth > DEEPEST) {
    if (isHtml(element) && visibleNow(element, SEEN)) emitText(out, ` ${innerText(element)} `, place, null);
    return;
  }
  if (name === 'br') {
    if (place.pre) push(out, '\n');
    else if (see.started) lineEnd(out);
    return;
  }
  const inner = placeIn(element, name, style, place);
  if (style.opacity === '0' && !awaitsScroll(element, style)) return transparent(element, inner, place, out);
  if (name === 'iframe' || name === 'frame') return frameNode(element, inner, out);
  const role = roleOf(element);
  const found = controlOf(element, name, role, style, place);
  if (name === 'svg') imageNode(element, name, inner, out);
  else if (name === 'img' || (role === 'img' && !found)) return imageNode(element, name, inner, out);
  if (name === 'label' && !place.control) labelFor(element, style, inner, place, out);
  if (found && found[0] !== 'editable') return controlNode(element, name, role, found, style, inner, place, out);
  if (style.contentVisibility !== 'hidden') plainNode(element, name, role, found, style, inner, place, out);
};

/** Emit an element that is no control, or is edited: as a block or in the line. */
const plainNode = (element, name, role, editable, style, inner, place, out) => {
  const { display } = style;
  let kind = editable ? 'editable' : kindOf(element, name, role, place);
  if (kind === 'table') {
    inner.table = name !== 'table' || isDataTable(element, role) ? { spans: [] } : null;
    if (!inner.table) kind = '';
  }
  if (kind === 'list' || /^(ul|ol|menu)$/.test(name)) inner.list = true;
  else if (kind && kind !== 'item') inner.list = false;
  inner.pre ||= kind === 'pre';
  const mark = !kind && !inner.pre && display === 'inline' && MARKS[name];
  if (mark) {
    const node = ['mark', { type: mark }];
    const spaced = see.started && see.space;
    see.space &&= !spaced;
    children(element, name, inner, node);
    if (node.length > 2) inline(out, node, spaced);
    else see.space ||= spaced;
    return;
  }
  inner.likes = makesIn(element);
  if (!kind) {
    const boxed = /^(inline-|table-cell)/.test(display) || (place.row && /^(block|flex|grid|inline)/.test(display));
    const listed = place.row && place.likes?.has(makeOf(element));
    const low = boxed && !listed && box(element).height <= 60;
    const flows = display === 'contents' || (!place.row && /^(inline|ruby|math|ruby-text)$/.test(display));
    if (flows || low || !isHtml(element)) {
      see.gap ||= !flows;
      children(element, name, inner, out);
      see.gap ||= !flows;
      return;
    }
    if (/^table-(row|header|footer)-group$/.test(display) || /^t(body|head|foot)$/.test(name)) {
      children(element, name, inner, out);
      if (inner.likes && !out[1].selector) setSelector(element, out);
      return;
    }
  }
  blockNode(element, name, role, kind, style, inner, place, out);
};

const blockNode = (element, name, role, kind, style, inner, place, out) => {
  const node = structure(element, name, role, kind || 'block', place);
  const attributes = node[1];
  const caption = captionOf(element, kind);
  if (caption) {
    inner.caption = caption;
    attributes.label = short(fold(nameFrom(caption)), 500);
  }
  const { started, space, gap, edge, text, controls, writes } = see;
  boundary();
  const lines = !kind && KEEPS.test(inner.space) && !elementCount(element) && /\n|  /.test(textContent(element).trim());
  if (lines) {
    node[0] = 'pre';
    inner.pre = true;
  }
  children(element, name, inner, node);
  boundary();
  if (kind === 'row') alignRow(node, place.table);
  attributes[TEXT] = see.text - text;
  const hasControls = see.controls > controls;
  if (!kind && attributes.like === 'div' && !hasControls) delete attributes.like;  // a paragraph
  if (kind === 'form' && !hasControls) node[0] = 'block';
  if (kind === 'list' && !node.some((child) => child[0] === 'item')) node[0] = 'block';
  if (inner.likes) setSelector(element, node);
  if (kind === 'editable') {
    const label = labelOf(element, name, fold(shownText(node)) || ' ');
    if (label) attributes.label = label;
    setValue(element, 'editable', attributes);
    const states = statesOf(element, name, role);
    if (states.length) attributes.state = states;
    const rect = box(element);
    const unseen = () => !inner.visible || !reaches(rect, inner.outer) ||
      covered(element, rect, inner.outer, inner.behind);
    if (writes === see.writes && unseen()) return;
    if (inner.inert) see.inert++;
    else attributes[REF] = element;
    see.controls++;
  } else if (REGIONS.has(node[0]) && !attributes.label) {
    const label = named(element, 'aria-label') || referred(element, 'aria-labelledby');
    if (label && !plain(shownText(node)).includes(plain(label))) attributes.label = short(label);
  }
  // An empty block ends a line too, if it is in the flow.
  const empty = writes === see.writes && kind !== 'cell' && kind !== 'editable' && !attributes.label;
  const beside = /absolute|fixed/.test(style.position) || style.float !== 'none';
  if (empty && beside) Object.assign(see, { started, space, gap, edge });
  else out.push(node);
};

// -- the look --------------------------------------------------------------------------------------------------------

const focused = () => {
  const found = activeElement(document);
  let at = found;
  for (let shadow; at && (shadow = openShadow(at)) && shadow.activeElement;) at = shadow.activeElement;
  return at === bodyOf(document) || at === documentElement(document) ? null : at;
};

const treeOf = (html, body) => {
  see.root = rootFrame(html, body);
  // No scrolling brings what is beside the viewport, but a higher one would show more of what is cut off below.
  see.fixed = { ...frame(0, 0, innerWidth, innerHeight), cb: Infinity };
  see.bodyScrolls = styleOf(html).overflow !== 'visible';
  see.overlays = findOverlays(html, body);
  see.tests = 0;
  see.place = {
    parent: null, style: null, outer: see.root, flow: see.root, visible: true, pointer: false, space: 'collapse',
    caption: null, behind: see.overlays.size > 0, control: false, link: false, pre: false, muted: null, list: false,
    table: null, likes: null, inert: false, depth: 0, row: false,
  };
  const root = ['block', { label: 'page' }];  // which keeps it from being dissolved
  elementNode(html, see.place, root);
  markMain(root);
  const [found] = tidied(root);
  delete found[1].label;
  const [, attributes, only] = found;
  const single = found.length === 3 && only[0] === 'block' && !attributes.selector && !only[1][REF];
  return single ? only : found;
};

const look = (after) => {
  last = Math.max(last, after);
  see = {
    focus: focused(), range: newRange(document), overlays: new Set(),
    root: null, fixed: null, place: null, bodyScrolls: false,   // see treeOf
    told: new Set(),     // controls that are in the tree
    counts: new Map(),   // root: how many elements its selectors find
    tests: 0, queries: 0, elements: 0, controls: 0, writes: 0, text: 0, inert: 0, behindText: 0, behindControls: 0,
    started: false, space: false, gap: false, edge: null,
  };
  const html = documentElement(document);
  const remarks = [];
  const remark = (count, told) => { if (count) remarks.push(told.replace('#', count.toLocaleString('en-US'))); };
  let root = html ? treeOf(html, bodyOf(document)) : ['block', {}];
  if (/^image\//.test(document.contentType) && root.length === 2) {
    root.push(['image', { label: short(location.pathname.split('/').pop()) || 'image' }]);
  }
  if (see.behindText || see.behindControls) {
    const behind = `# characters and ${see.behindControls.toLocaleString('en-US')} controls behind it`;
    remark(see.behindText || '0', `an overlay covers the page: ${behind} are not shown`);
  }
  remark(see.inert, '# controls are inert: they cannot be used at the moment');
  if (see.elements > MOST_ELEMENTS) remark(MOST_ELEMENTS, 'the page is too long: only its first # elements are shown');
  if (JSON.stringify(root).length > BUDGET) {
    const room = { left: BUDGET, lost: 0 };
    root = cut(root, room);
    remark(room.lost, 'the page is too long: # characters at its end are not shown');
  }
  see = null;
  giveRefs(root);
  return { url: short(location.href, LONGEST_URL), title: short(fold(titleOf(document))), root, remarks, last };
};
