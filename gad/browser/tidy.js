// The eyes: makes a tree minimal, from the leaves up: wrappers are dissolved, empty nodes go, texts are joined.

const KEPT_LIKE = 20;        // like siblings that are kept of a tree that is too long

const isText = (node) => typeof node === 'string';
const isBlock = (node) => !isText(node) && (BLOCK_KINDS.has(node[0]) || (node[0] === 'editable' && node.some(isInner)));
const isInner = (child, at) => at > 1 && isBlock(child);
const isBlank = (node) => isText(node) ? !NOT_BLANK.test(node) : node[0] === 'break';
const bare = ([kind, { like, selector, main, label, [REF]: ref }]) =>
  kind === 'block' && !(like || selector || main || label || ref);

const trimmed = (run) => {
  const from = run.findIndex((item) => !isBlank(item));
  if (from < 0) return [];
  const found = run.slice(from, run.findLastIndex((item) => !isBlank(item)) + 1);
  if (isText(found[0])) found[0] = found[0].replace(/^ (?! )/, '');  // more than one is indentation
  if (isText(found.at(-1))) found.push(found.pop().replace(/ +$/, ''));
  return found;
};

/** Join texts and single breaks; each run of inline content between blocks is trimmed, and wrapped where asked. */
const joined = (items, wrap) => {
  const result = [];
  let run = [];
  const flush = () => {
    const found = trimmed(run);
    run = [];
    if (found.length && wrap) result.push(['block', {}, ...found]);
    else for (const item of found) result.push(item);
  };
  for (const item of items) {
    const previous = run.at(-1);
    if (isBlock(item)) {
      flush();
      result.push(item);
    } else if (isText(item) && isText(previous)) run.push(run.pop() + item);
    else if (item[0] !== 'break') run.push(item);
    else if (previous !== undefined && previous[0] !== 'break') {
      if (isText(previous)) run.push(run.pop().replace(/ +$/, ''));
      run.push(item);
    }
  }
  flush();
  return result;
};

const LINE_END = [['break', {}]];

/** Blocks as lines, for what cannot hold blocks. */
const flattened = (items) => items.flatMap((item) => isText(item) || !BLOCK_KINDS.has(item[0]) || item[0] === 'frame'
  ? [item] : [...LINE_END, ...flattened(item.slice(2)), ...LINE_END]);

const tidiedPre = (kind, attributes, items) => {
  const found = [];
  for (const item of items.flatMap((each) => isBlock(each) ? ['\n', ...each.slice(2), '\n'] : [each])) {
    const previous = found.at(-1);
    if (item === '\n' && (previous === undefined || (isText(previous) && previous.endsWith('\n')))) continue;
    if (isText(item) && isText(previous)) found.push(found.pop() + item);
    else found.push(item);
  }
  if (isText(found[0])) found[0] = found[0].replace(/^[ \t]*\n/, '');
  if (isText(found.at(-1))) found.push(found.pop().trimEnd());
  return found.every(isBlank) ? LINE_END : [[kind, attributes, ...found]];
};

const tidiedControl = (kind, attributes, items) => {
  const held = items.filter((item) => !isText(item) || NOT_BLANK.test(item));
  if (held.length === 1 && /^h[1-6]$/.test(held[0][0])) {  // the heading is around the control
    const [heading, , ...inner] = held[0];
    return [[heading, {}, [kind, attributes, ...joined(flattened(inner), false)]]];
  }
  // Controls in a control, which HTML does not allow but scripts make, follow it.
  const flat = flattened(items);
  const nested = flat.filter((item) => CONTROL_KINDS.has(item[0])).flatMap((item) => [' ', item]);
  const own = flat.filter((item) => !CONTROL_KINDS.has(item[0]));
  const found = joined(own, false);
  if (kind === 'mark' && !found.length) return nested;
  const result = [[kind, attributes, ...found], ...nested];
  if (!own.length) return result;
  // What begins or ends with a block does so for the line around it.
  if (own[0][0] === 'break') result.unshift(['break', {}]);
  else if (own[0][0] === ' ') result.unshift(' ');
  const end = own.at(-1);
  if (end[0] === 'break') result.push(['break', {}]);
  else if (isText(end) && /\s$/.test(end)) result.push(' ');
  return result;
};

/** What becomes of a node: nothing, itself, or its children when it has no meaning of its own. */
const tidied = (node) => {
  const [kind, attributes] = node;
  if (kind === 'muted') return see.told.has(attributes[TARGET]) ? [] : [` ${node[2]} `];
  const items = [];
  for (let i = 2; i < node.length; i++) {
    if (isText(node[i])) items.push(node[i]);
    else for (const each of tidied(node[i])) items.push(each);
  }
  if (kind === 'pre') return tidiedPre(kind, attributes, items);
  if (kind === 'mark' ? items.some(isBlock) : CONTROL_KINDS.has(kind)) return tidiedControl(kind, attributes, items);
  if (bare(node) && items.some(isBlock)) return joined(items, true);
  let found = joined(items, false);
  if (found.length === 1 && !isText(found[0]) && bare(found[0])) found = found[0].slice(2);
  const empty = !found.length && !attributes.label && !/^(cell|frame|more)$/.test(kind);
  const cellsOnly = kind === 'row' && found.every((cell) => cell[0] === 'cell' && cell.length === 2);
  if (BLOCK_KINDS.has(kind) && (empty || cellsOnly)) return LINE_END;
  return kind === 'mark' && !found.length ? [] : [[kind, attributes, ...found]];
};

/** Mark the main content: <main>, the only <article>, or the deepest block with more than 60 % of the text. */
const markMain = (root) => {
  const found = { main: [], article: [] };
  const visit = (node) => {
    if (found[node[0]]) found[node[0]].push(node);
    for (const child of node.slice(2)) if (BLOCK_KINDS.has(child[0]) && !isText(child)) visit(child);
  };
  visit(root);
  const size = (node) => node[1][TEXT] || 0;
  const most = 0.6 * see.text;
  let best = found.main.sort((a, b) => size(b) - size(a))[0];
  if (!best && found.article.length === 1 && size(found.article[0]) > 0.3 * see.text) [best] = found.article;
  if (!best && see.text >= 200) {
    const holds = /^(block|item|article|aside|form|group|table|row|cell|dialog|quote)$/;
    for (let at = root; at; at = at.slice(2).find((node) => holds.test(node[0]) && size(node) > most)) {
      if (at !== root && at[0] !== 'table' && at[0] !== 'row') best = at;
    }
  }
  if (best) best[1].main = true;
};

/** Cut a tree that is too long: of like siblings, the first 20 stay, and of all that remains what comes first. */
const cut = (node, room) => {
  const result = node.slice(0, 2);
  const { selector } = node[1];
  const likes = new Map();  // how many there are, and the node that stands for the rest
  for (let child of node.slice(2)) {
    const { like } = isText(child) ? {} : child[1];
    const known = like && (likes.get(child[0] + like) || { count: 0, more: null });
    if (known) {
      likes.set(child[0] + like, known);
      if (++known.count > KEPT_LIKE) {
        if (!known.more) result.push(known.more = ['more', { count: 0, like, ...(selector && { selector }) }]);
        known.more[1].count++;
        continue;
      }
    }
    if (room.left <= 0) room.lost += isText(child) ? child.length : shownText(child).length;
    else if (isText(child)) {
      room.lost += Math.max(0, child.length - room.left);
      child = short(child, room.left);
      room.left -= child.length;
      result.push(child);
    } else {
      room.left -= JSON.stringify(child.slice(0, 2)).length;
      result.push(cut(child, room));
    }
  }
  return result;
};

/** Give refs to what is left in a tree. */
const giveRefs = (node) => {
  if (node[1][REF]) node[1].ref = refOf(node[1][REF]);
  for (let i = 2; i < node.length; i++) if (!isText(node[i])) giveRefs(node[i]);
};
