"""Chat templates: rendered as transformers renders them, and harmless whatever they try."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engine import chat, tokenizer
from engine.chat import ChatTemplate
from engine.errors import LabError

PROMPT = 'Say <b>"hi"</b> & {{ 7 * 7 }} \\ 小明\n  twice'
TOKENS = (("bos_token", "<s>"), ("eos_token", "</s>"))

TEMPLATES = {
    "blocks trimmed": """{{ bos_token }}
{% for m in messages %}
    {% if m.role == 'user' %}
U: {{ m['content'] | trim }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}A:{% endif %}{{ eos_token }}""",
    "tojson": "{{ messages | tojson }}|{{ messages | tojson(indent=2) }}|{{ {'b': 1, 'a': 2} | tojson }}",
    "tools absent": "{% if tools is not none %}T{% else %}none{% endif %}{% if documents %}D{% endif %}",
    "loop controls": """{% for i in range(9) %}
        {%- if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}
    {%- endfor %}""",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "date": "{{ strftime_now('%Y') }}{% if not date_string is defined %}x{% endif %}",
    "macro": "{% macro say(x) %}[{{ x }}]{% endmacro %}{{ say(messages[0].content) }}{{ messages[-1]['role'] }}",
    "slices": "{% set rest = messages[1:] %}{{ rest | length }}{{ messages[0].content.split('\\n')[-1].strip() }}",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_renders_as_in_transformers(template: str) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    rendered, _ = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, **dict(TOKENS))
    assert ChatTemplate(template, TOKENS).render(PROMPT) == rendered[0]


def test_the_demo_models_template(demo_folder: Path) -> None:
    settings = json.loads((demo_folder / "tokenizer_config.json").read_text())
    expected, _ = render_jinja_template(
        [[{"role": "user", "content": PROMPT}]], chat_template=settings["chat_template"], add_generation_prompt=True
    )
    assert tokenizer.load(demo_folder).chat(PROMPT) == expected[0]
    assert "You are a helpful AI assistant named SmolLM" in expected[0]


# --- where it comes from ----------------------------------------------------------------------------


def test_a_template_of_its_own_file_wins(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("from the file")
    found = chat.from_folder(tmp_path, {"chat_template": "from the settings", "bos_token": {"content": "<s>"}})
    assert found == ChatTemplate("from the file", (("bos_token", "<s>"),))


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    found = chat.from_folder(tmp_path, {"chat_template": several})
    assert found is not None
    assert found.template == "yes"


@pytest.mark.parametrize("setting", [None, 3, [], [{"name": "other", "template": "x"}], ["default"]])
def test_no_usable_template_is_none(tmp_path: Path, setting: object) -> None:
    assert chat.from_folder(tmp_path, {"chat_template": setting}) is None


def test_a_model_without_template_says_so(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no chat template; run without chat"):
        tokenizer.byte_tokenizer(512, 256, (257,)).chat("Hi")


# --- hostile ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ self.__init__.__globals__ }}",
        "{% set _ = messages.append(1) %}{{ messages }}",
        "{% set _ = messages[0].update({'role': 'x'}) %}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ open('/etc/passwd').read() }}",
        "{{ messages[0]['content'] | nosuchfilter }}",
        "{{ 1 // 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for x in messages %}",
        "{{ range(10000000) | list | length }}",
    ],
)
def test_what_a_template_may_not_do_is_one_sentence(template: str) -> None:
    with pytest.raises(LabError, match=r"^The model's chat template cannot be rendered \(.*\); run") as caught:
        ChatTemplate(template).render("Hi")
    assert "\n" not in str(caught.value)
    assert "root:" not in str(caught.value)


def test_an_attribute_out_of_reach_shows_nothing() -> None:
    assert ChatTemplate("[{{ raise_exception.__globals__ }}]").render("Hi") == "[]"


def test_a_template_may_refuse_a_prompt() -> None:
    with pytest.raises(LabError, match="refuses this prompt: only questions, please"):
        ChatTemplate("{{ raise_exception('only questions,\nplease') }}").render("Hi")


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10 ** 10 }}",
        "{{ 10 ** (10 ** 10) }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{{ '%9999999999d' % 1 }}",
        "{% for i in range(2000) %}{{ messages[0].content * 1000 }}{% endfor %}",
    ],
    ids=["loops", "long string", "large power", "doubling", "padding", "output"],
)
def test_a_template_without_end_is_ended(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "CPU_S", 1)
    start = time.monotonic()
    with pytest.raises(LabError, match=r"takes more than 1 s, 512 MB or 1,000,000 characters|cannot be rendered"):
        ChatTemplate(template).render("Hi")
    assert time.monotonic() - start < chat.PATIENCE_S


def test_a_template_that_only_waits_is_ended_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "CPU_S", 60)
    monkeypatch.setattr(chat, "PATIENCE_S", 1.0)
    with pytest.raises(LabError, match="takes more than"):
        ChatTemplate("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}").render("Hi")


def test_an_absurdly_long_template_is_not_tried() -> None:
    with pytest.raises(LabError, match=r"is 200001 characters long"):
        ChatTemplate("x" * 200_001).render("Hi")
