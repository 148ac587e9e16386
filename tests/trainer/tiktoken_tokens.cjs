// tiktoken_tokens.cjs MODULES FILE SEED COUNT: writes FILE in tiktoken's format, with the ranks that the package tiktoken in MODULES has for GPT-2
// (r50k_base), makes COUNT texts, and prints each with the tokens that tiktoken itself gives it, as a line of JSON.
const fs = require('fs');

// Characters that were assigned long ago: what a newer Unicode makes of the others is nobody's error.
const RANGES = [[0x20, 0x7e], [0x20, 0x7e], [0xa0, 0x36f], [0x400, 0x52f], [0x660, 0x669], [0x2010, 0x205e], [0x2150, 0x2188], [0x3041, 0x3096],
                [0x4e00, 0x9fa5], [0xac00, 0xd7a3], [0x1f600, 0x1f64f]];
const PIECES = [' the', 'ing', "'re", "'S", "n't", '  ', '\n', '\r\n', '\t', '\u00a0', '\u3000', ' 2026', '...', '<|endoftext|>', ' tutti', '\u200d'];
const FIRST = ['', ' ', 'Hello, world!', "it's IT'S 'twas don't'll", 'a  b\n\n c ', 'A'.repeat(300), ' '.repeat(300), 'ab'.repeat(200), '<|endoftext|>'];

function main(modules, path, seed, count) {
  const find = (name) => require(require.resolve(name, { paths: [modules] }));
  const ranks = find('tiktoken/encoders/r50k_base.json');
  const { Tiktoken } = find('tiktoken/lite');
  // The package packs runs of ranks: "! FIRST TOKEN TOKEN ...".
  const lines = [];
  for (const run of ranks.bpe_ranks.split('\n')) {
    const [, first, ...tokens] = run.split(' ');
    tokens.forEach((token, i) => lines.push(`${token} ${Number(first) + i}\n`));
  }
  fs.writeFileSync(path, lines.join(''));
  const encoder = new Tiktoken(ranks.bpe_ranks, ranks.special_tokens, ranks.pat_str);
  let state = Number(seed);
  const below = (n) => {      // Park and Miller's
    state = (state * 48271) % 2147483647;
    return state % n;
  };
  const some = () => {
    if (below(3) === 0) return PIECES[below(PIECES.length)];
    const [low, high] = RANGES[below(RANGES.length)];
    return String.fromCodePoint(low + below(high - low + 1)).repeat(below(8) === 0 ? 5 : 1);
  };
  for (let i = 0; i < Number(count); ++i) {
    let text = FIRST[i] ?? '';
    for (let n = i < FIRST.length ? 0 : 1 + below(80); n > 0; --n) text += some();
    console.log(JSON.stringify({ text, tokens: Array.from(encoder.encode(text, [], [])) }));      // no special tokens: they are text
  }
}

main(...process.argv.slice(2));
