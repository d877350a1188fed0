from __future__ import annotations

from random import Random

import pytest

from crawlproj.parsing import language
from crawlproj.parsing.language import language_of
from crawlproj.simweb.words import LANGUAGES, sentences

TEXTS = {
    "en": "This page is about the history of the village and of the people who have lived there "
    "for centuries.",
    "de": "Diese Seite handelt von der Geschichte des Dorfes und von den Menschen, die dort "
    "seit langem leben.",
    "fr": "Cette page parle de l'histoire du village et des gens qui y vivent depuis des "
    "siècles dans le calme.",
    "es": "Esta página trata de la historia del pueblo y de las personas que viven allí desde hace siglos.",
    "it": "Questa pagina parla della storia del paese e delle persone che ci vivono da secoli in una valle.",
    "pt": "Esta página fala da história da aldeia e das pessoas que vivem lá há séculos, com "
    "uma ponte e um rio.",
    "nl": "Deze pagina gaat over de geschiedenis van het dorp en over de mensen die er al eeuwen wonen.",
    "sv": "Den här sidan handlar om byns historia och om de människor som har bott där i flera hundra år.",
    "pl": "Ta strona opowiada o historii wsi i o ludziach, którzy od wieków tam mieszkają, oraz "
    "o tym, co się działo.",
    "cs": "Tato stránka je o historii vesnice a o lidech, kteří tam po staletí žijí, a také o "
    "tom, jak se jim daří nebo nedaří.",
    "hu": "Ez az oldal a falu történetéről szól, és azokról az emberekről, akik már évszázadok "
    "óta ott élnek.",
    "ro": "Această pagină este despre istoria satului și despre oamenii care trăiesc acolo de "
    "secole, în pace.",
    "tr": "Bu sayfa köyün tarihi ve orada yüzyıllardır yaşayan insanlar için bir anlatı olarak çok önemli.",
    "fi": "Tämä sivu kertoo kylän historiasta ja ihmisistä, jotka ovat asuneet siellä, mutta ei "
    "siitä, kun se oli uusi.",
    "id": "Halaman ini adalah tentang sejarah desa dan orang yang tinggal di sana dengan damai "
    "untuk waktu yang lama.",
    "vi": "Trang này nói về lịch sử của ngôi làng và những người đã sống ở đó trong nhiều thế kỷ.",
    "ru": "Эта страница рассказывает об истории деревни и о людях, которые живут там уже не одно столетие.",
    "uk": "Ця сторінка розповідає про історію села та про людей, які живуть там уже не одне століття.",
    "bg": "Тази страница е за историята на селото и за хората, които живеят там от векове и не "
    "са си тръгнали.",
    "el": "Αυτή η σελίδα αφορά την ιστορία του χωριού και τους ανθρώπους που ζουν εκεί.",
    "he": "הדף הזה עוסק בתולדות הכפר ובאנשים שחיים בו מאות שנים.",
    "ar": "هذه الصفحة عن تاريخ القرية وعن الناس الذين عاشوا في هذا المكان من قرون مع كل ما كان بين الجبال.",
    "fa": "این صفحه درباره تاریخ روستا است و از مردمی که در آن برای قرن ها زندگی کرده اند می گوید.",
    "hi": "यह पृष्ठ गाँव के इतिहास और वहाँ सदियों से रहने वाले लोगों के बारे में है।",
    "da": "Denne side handler om landsbyens historie og om de mennesker, der har boet der i hundreder af år.",
    "no": "Dette er en side om historien til bygda, og om folk som har bodd her i mange år uten å flytte.",
    "sk": "Táto stránka je o histórii obce a o ľuďoch, ktorí tam už po stáročia žijú, a ako sa im darí.",
    "sl": "Ta stran govori o zgodovini vasi in o ljudeh, ki tam živijo že stoletja, ter o tem, kako.",
    "ca": "Aquesta pàgina tracta de la història del poble i de les persones que hi viuen des de fa segles.",
    "lt": "Šis puslapis yra apie kaimo istoriją ir apie žmones, kurie ten gyvena jau daug šimtmečių.",
    "lv": "Šī lapa ir par ciema vēsturi un par cilvēkiem, kuri tur dzīvo jau daudzus gadsimtus.",
    "et": "See lehekülg on küla ajaloost ja inimestest, kes on seal elanud juba sajandeid.",
    "is": "Þessi síða er um sögu þorpsins og um fólkið sem hefur búið þar í margar aldir og ekki farið.",
    "sq": "Kjo faqe është për historinë e fshatit dhe për njerëzit që jetojnë atje prej shekujsh.",
    "af": "Hierdie bladsy gaan oor die geskiedenis van die dorp en oor die mense wat al eeue daar woon.",
    "sw": "Ukurasa huu ni kuhusu historia ya kijiji na watu ambao wameishi huko kwa karne nyingi.",
    "be": "Гэтая старонка расказвае пра гісторыю вёскі і пра людзей, якія жывуць там ужо не адно стагоддзе.",
    "mk": "Оваа страница е за историјата на селото и за луѓето кои живеат таму со векови и не си заминале.",
    "sr": "Ова страница је о историји села и о људима који тамо живе вековима и нису отишли.",
    "ur": "یہ صفحہ گاؤں کی تاریخ اور ان لوگوں کے بارے میں ہے جو صدیوں سے وہاں رہ رہے ہیں۔",
    "mr": "हे पान गावाच्या इतिहासाबद्दल आणि तेथे शतकानुशतके राहणाऱ्या लोकांबद्दल आहे.",
    "bn": "এই পাতাটি গ্রামের ইতিহাস এবং সেখানে বহু শতাব্দী ধরে বাস করা মানুষদের নিয়ে।",
    "te": "ఈ పేజీ గ్రామ చరిత్ర గురించి మరియు అక్కడ నివసించే ప్రజల గురించి.",
    "th": "หน้านี้เกี่ยวกับประวัติศาสตร์ของหมู่บ้านและผู้คนที่อาศัยอยู่ที่นั่น",
    "ja": "このページは村の歴史と、そこに何世紀も住んでいる人々についてのものです。",
    "zh": "本页介绍村庄的历史以及世世代代生活在那里的人们。",
    "ko": "이 페이지는 마을의 역사와 그곳에서 수백 년 동안 살아온 사람들에 관한 것입니다.",
}


@pytest.mark.parametrize(("code", "text"), TEXTS.items())
def test_a_sentence_is_enough_to_detect_a_language(code: str, text: str) -> None:
    assert language_of(text) == code


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_of_the_simulated_web_are_distinct(language: str) -> None:
    random = Random(1)
    texts = ["".join(random.choices(sentences(language), k=10)) for _ in range(50)]

    assert {language_of(text) for text in texts} == {language}


@pytest.mark.parametrize("hint", ["fr", "en-US", "xx"])
def test_the_text_goes_over_what_the_page_says(hint: str) -> None:
    assert language_of(TEXTS["de"], hint) == "de"


@pytest.mark.parametrize("hint", ["hr", "bs"])
def test_between_close_relatives_the_page_decides(hint: str) -> None:
    text = "Ovo je stranica o historiji sela i o ljudima koji tamo žive."

    assert language_of(text) == "bs"
    assert language_of(text, hint) == hint


def test_a_language_by_another_name_is_one_language() -> None:
    assert language_of(TEXTS["no"], "nb-NO") == "no"
    assert language_of("Gnu Hurd 3.1", "nn") == "no"


def test_a_menu_before_the_text_and_words_of_another_script_in_it_do_not_count() -> None:
    text = "Home Login Contact " * 10 + (TEXTS["de"] + " 日本語 かな. ") * 20

    assert language_of(text) == "de"


def test_no_score_outgrows_its_sixteen_bits() -> None:
    highest = [
        max(
            max(language._SCORES.unpack(weights.to_bytes(language._SCORES.size, "little")))
            for weights in table
        )
        for table in (language._STARTS.values(), language._ENDS.values())
    ]

    assert sum(highest) * language._MOST_WORDS < 1 << 16


@pytest.mark.parametrize("text", ["", "Gnu Hurd 3.1", "def f(x): return x", "Home Login Contact"])
def test_what_is_not_clear_is_not_guessed(text: str) -> None:
    assert language_of(text) is None


@pytest.mark.parametrize(
    ("hint", "language"),
    [
        ("en", "en"),
        (" EN-gb ", "en"),
        ("de_AT", "de"),
        ("yue-HK", "yue"),
        ("english", None),
        ("", None),
        ("1", None),
    ],
)
def test_what_the_page_says_decides_where_the_text_leaves_it_open(hint: str, language: str | None) -> None:
    assert language_of("Gnu Hurd 3.1", hint) == language
