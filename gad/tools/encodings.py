"""Finds out how a text file is encoded, and turns it into text and back without losing a byte.

UTF-8 and the byte order marks decide at once. What is left is legacy text, where the usual detectors
guess wrong on the short files that people have (a few words of GBK inside a source file). So each
likely encoding is scored by how ordinary the text is that it would make; only when none makes ordinary text is
charset-normalizer asked.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass

_BOMS = (
    # UTF-32's little-endian mark begins with UTF-16's: it comes first.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_KINDS = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive or Office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"7z\xbc\xaf", "7z archive"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"GGUF", "GGUF model"),
    (b"MZ", "Windows program"),
    (b"\xd0\xcf\x11\xe0", "old Office document"),
)

_TEXT_CONTROLS = frozenset(b"\t\n\v\f\r\b\x1b\x1a")
_SAMPLE = 6_000
"""How many bytes of non-ASCII text are scored."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A codec's name and the byte order mark that the file begins with.

    With `exact` false some bytes are not text in this encoding; they come and go as lone surrogates,
    so even then nothing is lost.
    """

    name: str = "utf-8"
    bom: bytes = b""
    exact: bool = True

    @property
    def label(self) -> str:
        """The name for people: it tells what differs from plain UTF-8."""
        return self.name + (" with BOM" if self.bom and self.name == "utf-8" else "")

    def decode(self, data: bytes) -> str:
        """Return the text behind the byte order mark."""
        return data[len(self.bom) :].decode(self.name, "strict" if self.exact else _errors(self.name))

    def encode(self, text: str) -> bytes:
        """Return the bytes without the byte order mark.

        Raises ValueError that names the first character that this encoding does not have.
        """
        try:
            return text.encode(self.name, "strict" if self.exact else _errors(self.name))
        except UnicodeEncodeError as trouble:
            character = trouble.object[trouble.start]
            advice = (
                "it is half of a surrogate pair"
                if "\ud800" <= character <= "\udfff"
                else f"use characters that {self.name} has, or convert the file to UTF-8 first with code_run"
            )
            raise ValueError(
                f"the file is {self.name}, which cannot hold U+{ord(character):04X} {character!r}; {advice}"
            ) from trouble


UTF8 = Encoding()


def binary_kind(data: bytes) -> str | None:
    """Return what a binary file is, or None for text. `data` is the file's beginning."""
    if any(data.startswith(bom) for bom, _ in _BOMS):
        return None
    head = data[:8192]
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in head)
    # A PDF may begin like text; everything else that is listed holds NULs.
    if b"\0" not in head and controls * 20 <= len(head) and not head.startswith(b"%PDF-"):
        return None
    return next((kind for magic, kind in _KINDS if head.startswith(magic)), "binary data")


def detect(data: bytes, *, whole: bool = True) -> Encoding:
    """Return how this text is encoded. With `whole` false, `data` is only the file's beginning."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            return Encoding(name, bom, _decodes(data[len(bom) :], name, whole))
    if data.isascii() or _decodes(data, "utf-8", whole):
        return UTF8
    sample = _non_ascii(data)
    scores = {name: _score(sample, name) for name in ("utf-8", *_WEIGHTS)}
    name = max(scores, key=lambda name: scores[name])
    if scores[name] < 0.45:
        name = _ask_library(data) or name
    if name == "gbk" and not _decodes(data, name, whole) and _decodes(data, "gb18030", whole):
        name = "gb18030"
    if name == "cp1252" and not _decodes(data, name, whole):
        name = "latin-1"
    return Encoding(name, b"", _decodes(data, name, whole))


def alternatives(data: bytes) -> list[Encoding]:
    """Return every encoding that reads these bytes without a fault, for when the guess proved wrong."""
    if any(data.startswith(bom) for bom, _ in _BOMS):
        return []
    return [Encoding(name) for name in ("utf-8", "gb18030", *_WEIGHTS) if _decodes(data, name, True)]


def _errors(name: str) -> str:
    # UTF-16 and UTF-32 have no way to give a broken half back.
    return "surrogatepass" if name.startswith(("utf-16", "utf-32")) else "surrogateescape"


def _decodes(data: bytes, name: str, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(name)("strict").decode(data, whole)
    except UnicodeDecodeError:
        return False
    return True


def _non_ascii(data: bytes) -> bytes:
    """Return the lines that are not ASCII alone, about `_SAMPLE` bytes of them."""
    found = bytearray()
    for line in data.split(b"\n"):
        if not line.isascii():
            found += line[: _SAMPLE // 2] + b"\n"
            if len(found) > _SAMPLE:
                break
    return bytes(found)


def _score(sample: bytes, name: str) -> float:
    """Return how ordinary the text is that this encoding makes of the sample: 1 is very, below 0 is not at all."""
    text = sample.decode(name, "surrogateescape")
    weight = _WEIGHTS.get(name)
    total = 0.0
    size = 0
    for index, character in enumerate(text):
        if character < "\x80":
            continue
        if "\udc80" <= character <= "\udcff":
            total -= 2
            size += 1
            continue
        if weight is None:  # UTF-8: that a sequence is of three bytes is valid is strong evidence
            length = len(character.encode())
            value = 2.0 if length == 3 else 0.6
        else:
            code = character.encode(name)
            length = len(code)
            value = weight(code, character, text[index - 1 : index], text[index + 1 : index + 2])
        total += value * length
        size += length
    return total / size if size else 0.0


# The commonest characters of running text: they tell apart encodings whose byte ranges are the same.
_HANS = frozenset(
    "的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以会家可下而过天去能对小多然于心学么之都好看起发当"
    "没成只如事把还用第样道想作种开美总从无情己面最女但现前些所同日手又行意动方期它头经长儿回位分爱老因很给名法间斯知世什两次使身者被高已亲其进此"
    "话常与活正感见明问力理点文几定本公特做外孩相西果走将月十实向声车全信重三机工物气每并别真打太新比才便夫再书部水像眼等体却加电主界门利海受听表"
    "德少克代员许先口由死安写性马光白或住难望教命花结乐色更拉东神记处让母父应直字场平报友关放至张认接告入笑内英军候民岁往何度山觉路带万男边风解叫"
    "任金快原吃妈变通师立象数四失满战远格士音轻目条呢错误文件配置测试输入输出据码序函类型参返值试检查列删改注释"
)
_HANT = frozenset(
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得于著下自之年過發後作裡用道行所然家種事成方多經麼去法學如都同現"
    "當沒動面起看定天分還進好小部其些主樣理心她本前開但因只從想實日軍者意無力它與長把機十民第公此已工使情明性知全三又關點正業外將兩高間由問很最重並"
    "物手應戰向頭文體政美相見被利什二等產或新己制身果加西斯月話合回特代內信表化老給世位次度門任常先海通教兒原東聲提立及比員解水名真論處走義各入幾口"
    "認條平系氣題活爾更別打女變四神總何電數安少報才結反受目太量再感建務做接必場件計管期市直德資命山金指克許統區保至隊形社便空決治展設定檔案測試"
)
_HANGUL = frozenset(
    "이다는을가의에하고를은지한기로사어리도나해정인서자대일시라아만전들있과게수주보니그부세장으제상요안녕오것날습설파"
)


def _hanzi(common: frozenset[str], levels: Callable[[int, int], float]) -> Callable[[bytes, str, str, str], float]:
    def weight(code: bytes, character: str, before: str, after: str) -> float:
        if len(code) == 1:
            return -0.5
        return 1.0 if character in common else levels(code[0], code[1])

    return weight


def _gbk(lead: int, trail: int) -> float:
    if trail < 0xA1 or lead < 0xA1 or lead in (0xA4, 0xA5):
        return -0.5  # outside GB 2312, or kana, which Chinese text hardly has
    return 0.7 if lead in (0xA1, 0xA3) else 0.6 if 0xB0 <= lead <= 0xD7 else 0.1


def _big5(lead: int, trail: int) -> float:
    if 0xA4 <= lead <= 0xC6:
        return 0.4
    return 0.6 if lead == 0xA1 else -0.1 if 0xC9 <= lead <= 0xF9 else -0.5


def _cp949(lead: int, trail: int) -> float:
    if trail < 0xA1 or lead < 0xA1:
        return -0.5
    return 0.6 if lead in (0xA1, 0xA3) else 0.5 if 0xB0 <= lead <= 0xC8 else -0.3


def _euc_jp(lead: int, trail: int) -> float:
    if lead in (0xA4, 0xA5):
        return 1.0
    return 0.6 if lead in (0xA1, 0xA3) else 0.4 if 0xB0 <= lead <= 0xCF else -0.3


def _cp932(code: bytes, character: str, before: str, after: str) -> float:
    if len(code) == 1:  # half-width katakana: two of any GBK character look like it
        return -0.3
    lead, trail = code
    if (lead == 0x83 and trail <= 0x96) or (lead == 0x82 and trail >= 0x9F):
        return 1.0  # kana
    if lead in (0x81, 0x82):
        return 0.6
    return 0.5 if 0x88 <= lead <= 0x97 else -0.2


_LETTERS = frozenset("àâäáãåæçèéêëìíîïñòóôõöøœùúûüýÿßÀÂÄÁÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØŒÙÚÛÜÝ")
_SIGNS = frozenset("¿¡«»“”‘’„–—…€£©®™°§·²³½¼µ×±•\xa0ªº")


def _cp1252(code: bytes, character: str, before: str, after: str) -> float:
    if character in _SIGNS:  # a sign stands among ASCII, or beside another sign or letter
        return 0.9 if before < "\x80" or after < "\x80" else 0.0
    if character not in _LETTERS:
        return -0.5
    if character.isupper() and before.islower():
        return -0.8
    beside = sum(neighbour.isascii() and neighbour.isalpha() for neighbour in (before, after))
    if before < "\x80" and after < "\x80":
        return 1.0 if beside else 0.5
    return 0.7 if beside and {before, after} & (_LETTERS | _SIGNS) else -0.5


def _cp1251(code: bytes, character: str, before: str, after: str) -> float:
    if any(neighbour.isascii() and neighbour.isalpha() for neighbour in (before, after)):
        return -0.5
    if "а" <= character <= "я" or character == "ё":
        return 0.8 if before.isalpha() or after.isalpha() else 0.3
    if "А" <= character <= "Я" or character == "Ё":
        return -0.8 if before.islower() else 0.3
    return 0.5 if character in _SIGNS or character == "№" else -0.5


_WEIGHTS: dict[str, Callable[[bytes, str, str, str], float]] = {
    "gbk": _hanzi(_HANS, _gbk),
    "cp932": _cp932,
    "cp1252": _cp1252,
    "big5": _hanzi(_HANT, _big5),
    "cp949": _hanzi(_HANGUL, _cp949),
    "euc_jp": _hanzi(frozenset(), _euc_jp),
    "cp1251": _cp1251,
}


def _ask_library(data: bytes) -> str | None:
    import charset_normalizer  # takes 20 ms, and is seldom needed

    # A wide encoding without a mark would hold NULs, and that was found binary before.
    best = charset_normalizer.from_bytes(data[: 1 << 18], cp_exclusion=["utf_16", "utf_32", "utf_7"]).best()
    if best is None or best.encoding.startswith(("utf", "ascii")):
        return None
    return codecs.lookup(best.encoding).name
