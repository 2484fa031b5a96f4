// The eyes: what a person can see of a document, or come to by scrolling.

const MOST_TESTS = 3000;     // hit tests; what is not tested is taken as not covered

// A frame is what content is clipped to: c.. can be reached by scrolling, p.. (the port) shows at the moment.
const frame = (left, top, right, bottom) =>
  ({ cl: left, ct: top, cr: right, cb: bottom, pl: left, pt: top, pr: right, pb: bottom });
const NOTHING = frame(0, 0, 0, 0);

/** Whether a scroller begins at its right, and whether at its bottom. */
const backwards = ({ direction, writingMode }) => writingMode === 'horizontal-tb' ? [direction === 'rtl', false]
  : [/rl$/.test(writingMode), direction === 'rtl'];

const rootFrame = (html, body) => {
  const width = innerWidth, height = innerHeight;
  const scroller = scrollingElement(document) || html;
  const wide = Math.max(scrollWidth(scroller), width), high = Math.max(scrollHeight(scroller), height);
  const [fromRight, fromBottom] = backwards(styleOf(body || html));
  const found = frame(0, 0, width, height);
  if (![html, body].some((each) => each && /hidden|clip/.test(styleOf(each).overflowX))) {
    found.cl = fromRight ? width - scrollX - wide : -scrollX;
    found.cr = found.cl + wide;
  }
  found.ct = fromBottom ? height - scrollY - high : -scrollY;
  found.cb = found.ct + high;
  return found;
};

/** What the content of an element with this overflow is clipped to. */
const innerFrame = (element, style, outer, overflow) => {
  const [x, y = x] = overflow.split(' ');
  const rect = box(element);
  let { left, top, right, bottom } = rect;
  // A rectangle is as it is drawn, and all other lengths are as before transforms and zoom.
  let sx = 1, sy = 1;
  if (isHtml(element)) {
    sx = rect.width / offsetWidth(element) || 1;
    sy = rect.height / offsetHeight(element) || 1;
    left += sx * clientLeft(element);
    top += sy * clientTop(element);
    right = left + sx * clientWidth(element);
    bottom = top + sy * clientHeight(element);
  }
  const inner = { ...outer };
  if (x !== 'visible') {
    inner.cl = Math.max(outer.cl, left), inner.cr = Math.min(outer.cr, right);
    inner.pl = Math.max(outer.pl, left), inner.pr = Math.min(outer.pr, right);
  }
  if (y !== 'visible') {
    inner.ct = Math.max(outer.ct, top), inner.cb = Math.min(outer.cb, bottom);
    inner.pt = Math.max(outer.pt, top), inner.pb = Math.min(outer.pb, bottom);
  }
  if (inner.cr - inner.cl <= 1 || inner.cb - inner.ct <= 1) return NOTHING;
  const [fromRight, fromBottom] = backwards(style);
  if (/auto|scroll/.test(x)) {
    const wide = sx * scrollWidth(element), at = sx * scrollLeft(element);
    inner.cl = fromRight || at < 0 || style.flexDirection === 'row-reverse' ? right - at - wide : left - at;
    inner.cr = inner.cl + wide;
  }
  if (/auto|scroll/.test(y)) {
    const high = sy * scrollHeight(element), at = sy * scrollTop(element);
    inner.ct = fromBottom || at < 0 || style.flexDirection === 'column-reverse' ? bottom - at - high : top - at;
    inner.cb = inner.ct + high;
  }
  return inner;
};

const reaches = (rect, to) => Math.min(rect.right, to.cr) - Math.max(rect.left, to.cl) > 1.01 &&
  Math.min(rect.bottom, to.cb) - Math.max(rect.top, to.ct) > 1.01;

const drawn = (rect) => rect.width > 1.01 && rect.height > 1.01;

/** The box of an element, or, of one without an area (around something that floats), of the first thing in it. */
const boxOf = (element, style) => {
  const rect = box(element);
  if (drawn(rect) || style.overflow !== 'visible') return rect;
  for (let child = firstElement(element); child; child = nextElement(child)) {
    const inner = box(child);
    if (drawn(inner) && visibleNow(child, SEEN)) return inner;
  }
  return rect;
};

/** Whether clip or clip-path leave nothing of an element. */
const clippedAway = (style) => {
  const path = style.clipPath;
  if (path !== 'none') {
    const inset = /^inset\(([^)]*?)(?: round.*)?\)$/.exec(path);
    if (inset) {
      const shares = inset[1].split(' ').map((side) => /%$/.test(side) ? parseFloat(side) : 0);
      const [top, right = top, bottom = top, left = right] = shares;
      if (top + bottom >= 100 || left + right >= 100) return true;
    }
    if (/^circle\(0(px|%)?[ )]/.test(path) || /^polygon\((0(px|%)? 0(px|%)?,? ?)+\)$/.test(path)) return true;
  }
  if (style.position !== 'absolute' && style.position !== 'fixed') return false;
  const clip = /^rect\((-?[\d.]+)px,? (-?[\d.]+)px,? (-?[\d.]+)px,? (-?[\d.]+)px\)$/.exec(style.clip);
  return Boolean(clip) && (clip[2] - clip[4] <= 1 || clip[3] - clip[1] <= 1);
};

/** Pages let content fade in when it is scrolled to; a person sees it. */
const awaitsScroll = (element, style) => /^(static|relative)$/.test(style.position) &&
  (style.animationName !== 'none' ||
    (/opacity|all/.test(style.transitionProperty) && /[1-9]/.test(style.transitionDuration))) &&
  box(element).top >= innerHeight;

/** The element that is found at a point, in whatever shadow root it is. */
const hitAt = (x, y) => {
  see.tests++;
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
  if (/url\(/.test(style.backgroundImage)) return true;
  const alpha = /^rgba\(.*, ([\d.]+)\)$|\/ ([\d.]+)\)$/.exec(style.backgroundColor);
  return !alpha || +(alpha[1] ?? alpha[2]) >= 0.9;
};

/** Whether something else is before a point of an element. */
const coveredAt = (element, x, y) => {
  const hit = hitAt(x, y);
  let solid = false;
  for (let at = inside(hit, element) ? null : hit; at && !inside(element, at); at = above(at)) {
    if (/fixed|sticky/.test(styleOf(at).position)) return false;
    solid ||= opaque(at);
  }
  return solid;
};

/** The middle and near the corners of what shows of a rectangle at the moment. */
const points = (rect, to) => {
  const left = Math.max(rect.left, to.pl), top = Math.max(rect.top, to.pt);
  const right = Math.min(rect.right, to.pr), bottom = Math.min(rect.bottom, to.pb);
  if (right - left < 2 || bottom - top < 2) return [];
  const x = Math.min(3, (right - left) / 4), y = Math.min(3, (bottom - top) / 4);
  return [[(left + right) / 2, (top + bottom) / 2], [left + x, top + y], [right - x, top + y], [left + x, bottom - y],
    [right - x, bottom - y]];
};

/** Whether other things hide all of a rectangle of an element. */
const covered = (element, rect, to, behind) => {
  const found = points(rect, to);
  if (behind) {
    // An overlay lies over the page: only what is found by a hit test is before it.
    const holds = (hit) => hit !== bodyOf(document) && hit !== documentElement(document) && !see.overlays.has(hit);
    return !found.some(([x, y]) => {
      const hit = see.tests < MOST_TESTS && hitAt(x, y);
      return hit && (inside(hit, element) || (inside(element, hit) && holds(hit)));
    });
  }
  return found.length > 0 && see.tests < MOST_TESTS && found.every(([x, y]) => coveredAt(element, x, y)) &&
    styleOf(element).pointerEvents !== 'none';
};

/** The middles of the first texts in the viewport that are not in `tops`. */
const textsOutside = (body, tops, most) => {
  const found = [];
  const walker = newWalker(document, body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, (node) =>
    nodeType(node) === 3 ? NodeFilter.FILTER_ACCEPT
      : tops.has(node) || SKIPPED.has(localName(node)) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_SKIP);
  for (let looked = 0; found.length < most && looked < 2000 && walker.nextNode(); looked++) {
    const text = walker.currentNode;
    if (!NOT_BLANK.test(dataOf(text))) continue;
    see.range.selectNodeContents(text);
    const { left, top, right, bottom } = see.range.getBoundingClientRect();
    if (right - left > 1 && bottom - top > 1 && left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight &&
      visibleNow(parentNode(text), SEEN)) found.push([(left + right) / 2, (top + bottom) / 2]);
  }
  return found;
};

/** The elements that lie over all of the page, with what is before them; empty when there are none. */
const findOverlays = (html, body) => {
  const width = innerWidth, height = innerHeight, side = 7;
  const modal = new Set(findAll(document, ':modal'));
  if (!body || width < 50 || height < 50) return modal;
  const lengths = new Map();
  const length = (element) => {
    if (!lengths.has(element)) {
      let count = textContent(element).length;
      for (const unseen of findAll(element, 'script, style, noscript, template')) count -= textContent(unseen).length;
      lengths.set(element, count);
    }
    return lengths.get(element);
  };
  const floats = new Map();  // whether an element is out of the flow and does not hold the page's content
  const floating = (element) => {
    if (!floats.has(element)) {
      floats.set(element, /fixed|absolute/.test(styleOf(element).position) && length(element) <= 0.8 * length(body));
    }
    return floats.get(element);
  };
  const tops = new Set();
  let misses = 0;
  for (let spot = 0; spot < side * side && misses <= 0.1 * side * side; spot++) {
    let top = null;
    for (let at = hitAt(width * (spot % side + 0.5) / side, height * (Math.floor(spot / side) + 0.5) / side);
      at && at !== body && at !== html; at = above(at)) {
      if (floating(at)) top = at;
      if (matches(at, ':modal')) modal.add(at);  // in a shadow root, where no selector finds it
    }
    if (top) tops.add(top);
    else misses++;
  }
  if (modal.size) return new Set([...modal, ...findAll(document, ':popover-open')]);
  if (misses > 0.1 * side * side) return modal;
  const locked = [html, body].some((each) => {
    const { overflowY, position } = styleOf(each);
    return overflowY === 'hidden' || position === 'fixed';
  });
  const scrolls = scrollHeight(html) > height + 1 && !locked;
  const filling = [...tops].filter((top) => {
    const rect = box(top);
    return rect.left <= 0.05 * width && rect.top <= 0.05 * height && rect.right >= 0.95 * width &&
      rect.bottom >= 0.95 * height && (!scrolls || styleOf(top).position === 'fixed');
  });
  // Is there anything of the page behind it? Else it is no more than a picture before which the page scrolls.
  const behind = filling.length > 0 && textsOutside(body, tops, 60).some(([x, y]) => {
    const hit = hitAt(x, y);
    return hit && filling.some((over) => inside(hit, over));
  });
  return behind || (locked && filling.some((top) => styleOf(top).position === 'fixed')) ? tops : modal;
};
