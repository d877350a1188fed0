"""Words and sentences for simulated pages, in several languages and scripts."""

from __future__ import annotations

from functools import cache
from random import Random

WORDS: dict[str, str] = {
    "en": "river window market garden letter silver harbour winter evening paper bridge stone travel music "
    "kitchen island simple quiet early bright carry follow build remember answer between under always never "
    "the of and to in with from that is was for on by",
    "de": "Fluss Fenster Markt Garten Brief Hafen Winter Abend Brücke Stein Reise Küche Insel einfach ruhig "
    "früh hell tragen folgen bauen erinnern Antwort zwischen unter immer nie schön größer Straße über für "
    "der die das und in mit von zu ist war auf",
    "fr": "rivière fenêtre marché jardin lettre port hiver soirée papier pont pierre voyage musique cuisine "
    "île simple calme tôt clair porter suivre bâtir réponse entre sous toujours jamais été château "
    "le la les de et à dans avec pour que est sur par",
    "es": "río ventana mercado jardín carta puerto invierno tarde papel puente piedra viaje música cocina "
    "isla sencillo tranquilo temprano claro llevar seguir construir respuesta entre bajo siempre nunca "
    "mañana el la los de y en con para que es por un",
    "ru": "река окно рынок сад письмо гавань зима вечер бумага мост камень дорога музыка кухня остров "
    "простой тихий ранний светлый нести строить помнить ответ между всегда никогда большой новый и в на с "
    "что не для из по это как",
    "el": "ποτάμι παράθυρο αγορά κήπος γράμμα λιμάνι χειμώνας βράδυ χαρτί γέφυρα πέτρα ταξίδι μουσική "
    "κουζίνα νησί απλό ήσυχο νωρίς φωτεινό απάντηση μεταξύ πάντα ποτέ και το της με στην από για που είναι",
    "ja": "川 窓 市場 庭 手紙 港 冬 夕方 紙 橋 石 旅 音楽 台所 島 静か 早い 明るい 運ぶ 建てる 覚える 答え "
    "いつも です ます から まで そして これは それは の は を に が で と も",
    "ar": "نهر نافذة سوق حديقة رسالة ميناء شتاء مساء ورق جسر حجر سفر موسيقى مطبخ جزيرة بسيط هادئ مبكر مضيء "
    "جواب بين تحت دائما أبدا في من على إلى مع هذا التي كان",
}
LANGUAGES = tuple(WORDS)
#: Charsets other than UTF-8 that can spell the language.
CHARSETS: dict[str, tuple[str, ...]] = {
    "en": ("iso-8859-1", "utf-16"),
    "de": ("iso-8859-1", "utf-16"),
    "fr": ("iso-8859-1", "utf-16"),
    "es": ("iso-8859-1",),
    "ru": ("windows-1251",),
    "el": ("utf-16",),
    "ja": ("shift_jis",),
    "ar": ("utf-16",),
}
#: How many different sentences a language has: enough that two pages never read alike by chance.
SENTENCES = 512


@cache
def sentences(language: str) -> tuple[str, ...]:
    words = WORDS[language].split()
    random = Random(LANGUAGES.index(language))
    glue, stop = ("", "。") if language == "ja" else (" ", ". ")
    made = []
    for _ in range(SENTENCES):
        # choices() and random() alone: their results are the same in every Python version.
        text = glue.join(random.choices(words, k=6 + int(random.random() * 12)))
        made.append(text[0].upper() + text[1:] + stop)
    return tuple(made)


@cache
def labels(language: str) -> tuple[str, ...]:
    """The text of links."""
    return tuple(text[:24].strip(" .。") for text in sentences(language))


@cache
def sentence_bytes(language: str) -> float:
    """The mean length of a sentence in UTF-8."""
    return sum(len(text.encode()) for text in sentences(language)) / SENTENCES
