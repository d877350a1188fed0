"""The language of a text: by its script, or by the small words no text can do without. Pure."""

from __future__ import annotations

import re
from struct import Struct

#: How much of a text is looked at, from its second quarter on: the first is often a menu.
_SAMPLE_CHARS = 1500
#: Small words that must be found, and how far ahead of the next language the first must be.
_FEWEST = 3
_LEAD = 1.2
#: The share of words that are small ones: in running text a fifth to a half; in a list of names next to none.
_SHARE = 0.06

_SMALL_WORDS = {
    "en": """
        the of and to in is that it for was on are as with his they be at this have from or by not
        but what were we when can an your which their if will has been would you
    """,
    "de": """
        der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an
        werden aus er hat dass sie nach wird bei einer um am sind noch wie einem über war oder
    """,
    "fr": """
        de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il
        sont avec mais ou cette être ses vous nous aux était elle leur à été
    """,
    "es": """
        de la que el en y a los del se las por un para con no una su al lo como más pero sus le ya o
        este sí porque esta entre cuando muy sin sobre también es
    """,
    "it": """
        di e il la che in un a per è una sono non con si da del le i della nel dei alla come anche
        più ma lo gli al delle questo ha essere se suo o dal
    """,
    "pt": """
        de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele
        das tem à seu sua ou ser quando muito há nos já está também
    """,
    "ca": """
        de la i el que a en els les un per una amb del no és al es com més dels ha són però aquest
        aquesta o ser també seva perquè fins hi ho
    """,
    "nl": """
        de van het een en in is dat op te zijn met voor niet aan er om ook als dan maar bij nog uit
        door over worden naar heeft hebben deze wordt werd of hij
    """,
    "sv": """
        och i att det som en på är av för med till den har de inte om ett han men var jag från vi så
        kan när eller under också efter sin där ska
    """,
    "no": """
        og i det er på som en til å av for at med har de ikke den om et men var jeg fra vi så kan
        når eller ble etter også ved seg skal hun noe
    """,
    "da": """
        og i at det er en til af på som med for de den der har ikke et om var fra men jeg vi så kan
        når eller blev efter også ved sig skal hun nogle hvad
    """,
    "fi": """
        ja on ei että se oli hän mutta kun joka ovat niin myös tai kuin ole sen sekä mukaan jos vain
        nyt voi olla hänen ollut jo sitä tämä
    """,
    "pl": """
        i w na z do się nie to że jest o jak po za od przez ale są tym dla co był oraz tego jego
        które może przy jako już tak lub jej
    """,
    "cs": """
        a v se na je že z s do o i to k ve pro za by ale si po jako od který která kteří jak tam už jsou
        které nebo byl jeho při až také podle být jen více
    """,
    "sk": """
        a v sa na je že z s do o i to k vo pre za by ale si po ako od ktorý ktorá ktorí tam už sú ktoré
        alebo bol jeho pri až tiež podľa byť len viac
    """,
    "hu": """
        a az és hogy nem is egy ez de van meg volt csak ha mint már el azt még ki vagy fel lesz
        szerint után amely ezt lehet kell
    """,
    "ro": """
        de și în a la cu pe că nu un o din este care pentru mai ce au fost sau se prin al ale dar
        sunt lui după această acest fi într
    """,
    "hr": """
        i u na je se da za su od s a o koji ne kao što ili će to po iz bi koje bio samo ali nije
        može prema kako više još
    """,
    "tr": """
        ve bir bu da de için ile olarak çok daha o en gibi olan ne kadar var sonra ama ki değil her
        mi veya olduğu tarafından ise
    """,
    "id": """
        yang dan di dengan untuk dari ini itu pada tidak dalam adalah ke akan oleh juga atau sebagai
        dapat telah karena ada mereka tersebut bisa lebih saya
    """,
    "vi": """
        và của là có trong được cho không với các một những người này đã để khi từ đến như về tại
        cũng trên theo ra vào nhiều
    """,
    "ru": """
        и в не на с что по как из для это от к за но он а то его или же при так был до все у она мы
        о бы было может также
    """,
    "uk": """
        і в не на з що до та як за для це від але він його або при так був у вона ми про й бути може
        також які який є із
    """,
    "bg": """
        и на в да се за от не е с че са по като това ще или но при който до му което той през още
        може също как беше
    """,
    "sr": """
        и у на је се да за су од са а који не као што или ће то по из би које био само али није може
        према како више
    """,
    "ar": """
        في من على إلى أن هذا التي مع كان الذي عن هذه ما لا بين كما أو وقد بعد كل غير لم ذلك قد هو هي
        دائما تحت
    """,
    "fa": """
        و در به از که این را با است برای آن یک خود تا کرد بر هم نیز شد می ها بود او شده
    """,
    "ur": """
        کے کی میں ہے اور سے کا کو اس پر نے ہیں یہ تھا کہ بھی ایک نہیں ہو کر گیا
    """,
    "hi": """
        के की में है और से का को यह पर ने हैं इस एक कि भी नहीं कर हो गया था लिए तो ही
    """,
}
_LANGUAGES = list(_SMALL_WORDS)
_COUNTS = Struct(f"<{len(_LANGUAGES)}H")
#: For each small word one number in which every language that has it counts one, in sixteen bits of its own.
_VOTES: dict[str, int] = {}
for _place, _words in enumerate(_SMALL_WORDS.values()):
    for _word in set(_words.split()):
        _VOTES[_word] = _VOTES.get(_word, 0) | 1 << 16 * _place

#: Scripts that one language of the web writes, or that are told apart by what else is in the text.
_SCRIPTS = (
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("ko", re.compile("[\uac00-\ud7af]")),
    ("zh", re.compile("[\u4e00-\u9fff]")),
    ("el", re.compile("[\u0370-\u03ff\u1f00-\u1fff]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
    ("ka", re.compile("[\u10a0-\u10ff]")),
    ("hy", re.compile("[\u0530-\u058f]")),
    ("ta", re.compile("[\u0b80-\u0bff]")),
    ("bn", re.compile("[\u0980-\u09ff]")),
)
_NOT_LATIN = re.compile("[\u0370-\u1eff\u3040-\ud7af]")
#: Japanese writes mostly in the characters of Chinese; this share of its own tells it.
_KANA_SHARE = 0.1
_HINT = re.compile(r"[a-z]{2,3}(?=$|[-_])")


def language_of(text: str, hint: str = "") -> str | None:
    """Return the ISO 639 code of the language of *text*, or None when it is not clear.

    *hint* is what the page says of itself, as in ``<html lang="en-GB">``: templates say it of pages in
    other languages, so it only decides where the text leaves it open.
    """
    start = len(text) // 4 if len(text) > _SAMPLE_CHARS else 0
    sample = text[start : start + _SAMPLE_CHARS].lower()
    claimed = match[0] if (match := _HINT.match(hint.strip().lower())) else None
    if not sample.isascii() and _NOT_LATIN.search(sample) and (script := _by_script(sample)):
        return script
    words = sample.split()
    votes = list(filter(None, map(_VOTES.get, words)))
    if len(votes) < max(_FEWEST, _SHARE * len(words)):
        return claimed
    counts = _COUNTS.unpack(sum(votes).to_bytes(_COUNTS.size, "little"))
    second, count = sorted(counts)[-2:]
    if count >= _LEAD * second:
        return _LANGUAGES[counts.index(count)] if count >= _FEWEST else claimed
    if claimed in _SMALL_WORDS and counts[_LANGUAGES.index(claimed)] * _LEAD >= count:
        return claimed
    return None


def _by_script(sample: str) -> str | None:
    letters = sum(map(str.isalpha, sample))
    kana = len(_SCRIPTS[0][1].findall(sample))
    if kana > _KANA_SHARE * letters:
        return "ja"
    for language, script in _SCRIPTS[1:]:
        if script.search(sample) and len(script.findall(sample)) > letters / 2:
            return language
    return None
