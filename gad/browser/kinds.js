// The eyes: what elements are, what they are called, and what they hold.

const OPTIONS = 15;          // of a select that are told, and those that are chosen
const LONGEST_URL = 2000;

const BLOCK_KINDS = words('block h1 h2 h3 h4 h5 h6 list item table row cell pre quote main article nav aside header ' +
  'footer search form group dialog frame more');
const REGIONS = words('main article nav aside header footer search form group dialog');
const TAG_KINDS = { __proto__: null, h1: 'h1', h2: 'h2', h3: 'h3', h4: 'h4', h5: 'h5', h6: 'h6', ul: 'list',
  ol: 'list', menu: 'list', table: 'table', pre: 'pre', blockquote: 'quote', main: 'main', article: 'article',
  nav: 'nav', aside: 'aside', search: 'search', form: 'form', fieldset: 'group', dialog: 'dialog' };
const ROLE_KINDS = { __proto__: null, main: 'main', article: 'article', navigation: 'nav', complementary: 'aside',
  banner: 'header', contentinfo: 'footer', search: 'search', form: 'form', group: 'group', radiogroup: 'group',
  dialog: 'dialog', alertdialog: 'dialog', list: 'list', listitem: 'item', table: 'table', grid: 'table',
  treegrid: 'table', row: 'row', cell: 'cell', gridcell: 'cell', columnheader: 'cell', rowheader: 'cell',
  presentation: '', none: '' };
const CONTROL_KINDS = words('link button input select textarea control frame');
const CONTROL_ROLES = words('checkbox radio switch tab menuitem menuitemcheckbox menuitemradio option combobox ' +
  'textbox searchbox slider spinbutton treeitem');
const FIELDS = words('input select textarea button progress meter');
const HOLDERS = words('input select textarea video audio canvas progress meter');  // what is in them is not shown
const PROGRESS = words('progress meter progressbar');  // they show something, but cannot be acted on
const MARKS = { __proto__: null, del: 'deleted', s: 'deleted', strike: 'deleted', code: 'code', kbd: 'code',
  samp: 'code', tt: 'code', sup: 'sup' };
const INLINE = words('a abbr b bdi bdo cite em i mark q s small span strong sub sup u font slot');

const AD_MARKS = [
  ['id', /^(google_ads|div-gpt-ad|aswift_|taboola-|outbrain_widget)/],
  ['class', /(^|\s)(adsbygoogle|trc_related_container|OUTBRAIN|ob-widget)(\s|$)/],
  ['aria-label', /^\s*(advertisements?|advertising|anzeigen?|werbung|publicité|publicidad|reklama)\s*$/i],
];
const AD_HOST = new RegExp('(^|\\.)(doubleclick\\.net|googlesyndication\\.com|googleadservices\\.com|' +
  'googletagmanager\\.com|adnxs\\.com|amazon-adsystem\\.com|taboola\\.com|outbrain\\.com|criteo\\.(com|net)|' +
  'adform\\.net|rubiconproject\\.com|pubmatic\\.com|casalemedia\\.com|smartadserver\\.com|scorecardresearch\\.com)$');

const REF = Symbol('element that is given a ref');
const TEXT = Symbol('characters of text outside of links');
const ROWS = Symbol('rows that a cell spans');
const TARGET = Symbol('control that a label names');

const isAd = (element) => AD_MARKS.some(([name, pattern]) => {
  const value = attribute(element, name);
  return value !== null && pattern.test(value);
});

const classesOf = (element) => (attribute(element, 'class') || '').slice(0, 1000).split(/\s+/).filter(Boolean);

const roleOf = (element) => (attribute(element, 'role') || '').trim().toLowerCase().split(/\s+/)[0];

const hrefOf = (element) => {
  let found = element.href;
  if (found instanceof SVGAnimatedString) found = found.baseVal;
  if (typeof found !== 'string' || /^javascript:/i.test(found)) return '';
  return short(found, /^(data|blob):/i.test(found) ? 60 : LONGEST_URL);
};

const kindOf = (element, name, role, place) => {
  if (role in ROLE_KINDS) {
    const kind = name === 'table' && ROLE_KINDS[role] ? 'table' : ROLE_KINDS[role];
    if (kind === 'row' || kind === 'cell') return place.table ? kind : '';
    return kind !== 'table' || find(element, '[role=row], tr') ? kind : '';
  }
  if (role === 'heading') {
    const level = +attribute(element, 'aria-level') || (/^h[1-6]$/.test(name) ? +name[1] : 2);
    return 'h' + Math.min(6, Math.max(1, level));
  }
  switch (name) {
    case 'li': return place.list ? 'item' : '';
    case 'tr': return place.table ? 'row' : '';
    case 'td': case 'th': return place.table ? 'cell' : '';
    case 'header': case 'footer': {
      for (let at = above(element); at; at = above(at)) {
        if (/^(article|aside|main|nav|section|form|dialog)$/.test(localName(at))) return '';
      }
      return name;
    }
  }
  return TAG_KINDS[name] || '';
};

/** Kind and type of what can be acted on; null for anything else. */
const controlOf = (element, name, role, style, place) => {
  const custom = role === 'link' || role === 'button' ? [role, '']
    : CONTROL_ROLES.has(role) || (role === 'gridcell' && has(element, 'tabindex')) ? ['control', role]
      : PROGRESS.has(role) ? ['control', 'progress'] : null;
  switch (name) {
    case 'a':
      if (has(element, 'href') || has(element, 'xlink:href')) {
        return custom && (custom[0] === 'control' || (role === 'button' && !hrefOf(element))) ? custom : ['link', ''];
      }
      // Without an address it is the target of a link when it has a name, else a script makes it one.
      if (!role && !has(element, 'name') && !has(element, 'id') && !place.control && isHtml(element)) {
        return ['control', 'clickable'];
      }
      break;
    case 'button': return custom || ['button', ''];
    case 'input': {
      const { type } = element;
      if (type === 'hidden') return null;
      if (/^(submit|button|reset|image)$/.test(type)) return ['button', ''];
      return ['input', role === 'switch' || role === 'combobox' ? role : type];
    }
    case 'select': case 'textarea': return [name, ''];
    case 'summary':
      if (above(element) instanceof HTMLDetailsElement) return ['button', ''];
      break;
    case 'video': case 'audio': case 'progress': case 'meter': return ['control', name];
    case 'canvas': {
      const { width, height } = box(element);
      const told = (width >= 100 && height >= 100) || named(element, 'aria-label') || named(element, 'title');
      return told && !place.control ? ['control', name] : null;
    }
  }
  const editable = attribute(element, 'contenteditable');
  if ((editable !== null && editable !== 'false' && isHtml(element)) ||
    (name === 'body' && document.designMode === 'on')) return ['editable', ''];
  if (custom) return custom;
  if (name === 'html' || name === 'body' || name === 'label' || place.control) return null;
  const looks = style.cursor === 'pointer' &&
    (!place.pointer || (has(element, 'tabindex') && isHtml(element) && tabIndex(element) >= 0));
  return looks || has(element, 'onclick') ? ['control', 'clickable'] : null;
};

// -- names, states and values ----------------------------------------------------------------------------------------

const plain = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, ' ').trim();

/** The text in an element with what is hidden: good enough for a name. */
const nameFrom = (element, depth = 0) => {
  let found = '';
  const first = firstChild(openShadow(element) || element);
  for (let node = first; node && found.length < 2000; node = nextSibling(node)) {
    const type = nodeType(node);
    if (type === 3) found += dataOf(node).slice(0, 2000);
    if (type !== 1 || depth >= 20) continue;
    const name = localName(node);
    if (name === 'img' || name === 'area') found += ` ${named(node, 'alt')} `;
    else if (name === 'title' && !isHtml(node)) found += textContent(node);
    else if (!HOLDERS.has(name) && !SKIPPED.has(name) && attribute(node, 'aria-hidden') !== 'true') {
      const gap = INLINE.has(name) ? '' : ' ';
      found += gap + (attribute(node, 'aria-label') || nameFrom(node, depth + 1)) + gap;
    }
  }
  return found;
};

const referred = (element, name) => {
  const ids = attribute(element, name);
  const root = ids && rootNode(element);
  return ids ? fold(ids.trim().split(/\s+/).slice(0, 20).map((id) => byId(root, id)).filter(Boolean)
    .map((found) => attribute(found, 'aria-label') || nameFrom(found)).join(' ')) : '';
};

/** What tells most likely what a control without a name is: where a link leads, or how the page calls it. */
const guessed = (element) => {
  const end = hrefOf(element).split(/[?#]/)[0].replace(/\/+$/, '').split('/').pop();
  if (end) {
    try { return short(decodeURIComponent(end), 60); } catch { return short(end, 60); }
  }
  const inner = find(element, 'svg use, i[class], span[class], svg[class], img[src]');
  const icon = inner && (attribute(inner, 'href') || attribute(inner, 'xlink:href') || '').split('#').pop();
  const file = inner && (attribute(inner, 'src') || '').replace(/^data:.*/is, '').split(/[?#]/)[0].split('/').pop();
  const found = attribute(element, 'id') || attribute(element, 'name') || icon ||
    (file && file.length < 60 && file) || classesOf(element)[0] || (inner && classesOf(inner)[0]);
  return found ? `(${short(found, 40)})` : '';
};

/** The accessible name, as far as what is shown on the control does not say it. */
const labelOf = (element, name, shown) => {
  const labels = FIELDS.has(name) ? [...element.labels] : [];
  let label = fold(labels.map((each) => nameFrom(each)).join(' ')) || referred(element, 'aria-labelledby') ||
    named(element, 'aria-label') || (/^(input|img|area)$/.test(name) ? named(element, 'alt') : '');
  if (!label && !shown) label = (HOLDERS.has(name) ? '' : fold(nameFrom(element))) || named(element, 'title');
  label = short(label);
  return shown && plain(shown).includes(plain(label)) ? '' : label;
};

const statesOf = (element, name, role) => {
  const aria = (key) => attribute(element, 'aria-' + key);
  const set = (value) => value !== null && value !== 'false' && value !== '';
  const input = name === 'input';
  const type = input ? element.type : '';
  const box = type === 'checkbox' || type === 'radio';
  const states = [];
  const add = (state, when) => { if (when) states.push(state); };
  const checkable = /^(checkbox|radio|switch|menuitemcheckbox|menuitemradio)$/.test(role);
  const checked = !box ? aria('checked') ?? (checkable ? 'false' : null)
    : type === 'checkbox' && element.indeterminate ? 'mixed' : String(element.checked);
  if (checked !== null) states.push({ true: 'checked', mixed: 'mixed' }[checked] || 'unchecked');
  add('disabled', aria('disabled') === 'true' || matches(element, ':disabled'));
  const typed = name === 'textarea' || (input && !/^(checkbox|radio|file|range|color)$/.test(type));
  add('readonly', typed ? element.readOnly : aria('readonly') === 'true');
  add('required', (FIELDS.has(name) && element.required) || aria('required') === 'true');
  const opened = name === 'summary' ? String(has(above(element), 'open')) : aria('expanded');
  add('expanded', opened === 'true');
  add('collapsed', opened === 'false');
  add('selected', aria('selected') === 'true');
  add('pressed', aria('pressed') === 'true');
  add('mixed', aria('pressed') === 'mixed');
  add('current', set(aria('current')));
  add('invalid', set(aria('invalid')) || (FIELDS.has(name) && matches(element, ':user-invalid')));
  add('focused', element === see.focus);
  add('multiple', (name === 'select' || type === 'file' || type === 'email') && element.multiple);
  return states;
};

/** The texts to choose from, with the names of their groups, and those that are chosen. */
const optionsOf = (options, text = (option) => option.label || textContent(option)) => {
  const texts = [], chosen = [];
  let left = 0, group = null;
  for (const option of options) {
    if (styleOf(option).display === 'none') continue;
    const told = short(fold(text(option)));
    if (option.selected) chosen.push(told);
    if (texts.length >= OPTIONS && !(option.selected && chosen.length <= OPTIONS)) {
      left++;
      continue;
    }
    const parent = parentNode(option);
    if (parent !== group && parent instanceof HTMLOptGroupElement) texts.push(`(${short(fold(parent.label))})`);
    group = parent;
    texts.push(told);
  }
  if (left) texts.push(`(${left} more)`);
  return [texts, chosen];
};

const setValue = (element, name, attributes) => {
  let value = '', options = [];
  if (name === 'input') {
    const { type } = element;
    if (type === 'password') value = element.value && '•••';
    else if (type === 'file') value = [...element.files].map((file) => file.name).join(', ');
    else if (type !== 'checkbox' && type !== 'radio') value = short(element.value, 2000);
    if (element.list) [options] = optionsOf(element.list.options, (option) => option.value);
  } else if (name === 'textarea') value = short(element.value, 5000);
  else if (name === 'select') {
    [options, value] = optionsOf(element.options);
    value = short(value.join(', '), 2000);
  } else if (name === 'progress') value = element.position >= 0 ? Math.round(element.position * 100) + '%' : '';
  else if (name === 'meter') value = String(element.value);
  else if (name !== 'editable') value = named(element, 'aria-valuetext') || named(element, 'aria-valuenow');
  const hint = ['placeholder', 'aria-placeholder', 'data-placeholder'].map((key) => named(element, key)).find(Boolean);
  if (options.length) attributes.options = options;
  if (value) attributes.value = value;
  if (hint && /^(input|textarea|select|editable)$/.test(name)) attributes.hint = short(hint);
};

/** What ::before and ::after say, without the glyphs of icon fonts. */
const pseudoText = (element) => fold(['::before', '::after'].map((pseudo) => {
  const quoted = /^"((?:[^"\\]|\\.)*)"/.exec(getComputedStyle(element, pseudo).content);
  return quoted ? quoted[1].replace(/\\(.)/g, '$1').replace(/[\ue000-\uf8ff]|[\u{f0000}-\u{10fffd}]/gu, '') : '';
}).join(' '));
