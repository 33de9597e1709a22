"""What fewer bytes cost in what a model says: perplexity and agreement with fp32 on a text that ships with the lab.

Speed is shown beside this, never without it. `engine.quality.measure` fills it in (it needs torch; nothing here does),
and what it found on the demo model is kept in `measured.json`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Language = Literal["en", "zh"]
Share = Annotated[float, Field(ge=0, le=1)]

TEXTS: dict[Language, str] = {
    "en": (
        "The ferry left the island at six, before the fog had lifted from the harbour. On the lower deck a woman sold "
        "tea from a tin kettle, and the steam of it stood in the cold air like a second chimney. Two boys counted the "
        "gulls on the railing and could not agree on a number, because the birds would not keep still. Their "
        "grandfather, who had been a carpenter, looked at the planks under his feet and said that whoever had laid "
        "them had known his trade: every joint was cut so that the water ran off and the wood could breathe.\n\n"
        "Halfway across, the engine slowed. The captain came down to explain that a current crosses the channel "
        "twice a day, and that it costs less fuel to wait for twenty minutes than to push against it. Nobody "
        "complained. A student took out a notebook and worked through the sum: the boat burns ninety litres an hour "
        "at full speed and thirty when it drifts, so a wait of twenty minutes costs ten litres and saves about "
        "twenty-five. She showed the page to the boys, who found a mistake in the third line, and all three were "
        "pleased. When the tide turned, the bow came round by itself, and the mainland appeared as a grey line, then "
        "as a row of warehouses, and at last as a street with a bakery that was just opening its shutters."
    ),
    "zh": (
        "春天的早上，图书馆还没有开门，台阶上已经坐着几个人。一位老师带来了一壶热茶，分给旁边等候的学生。"
        "他们谈起昨天的实验：同样的水，放在铁锅里和放在瓦罐里，凉下来的时间为什么不一样？有人说是因为锅的厚薄，"
        "有人说是因为盖子没有盖好。老师没有马上回答，只是请他们先把量到的数字写下来，再画成一条线。\n\n"
        "门开了，大家走进阅览室。窗外的玉兰开得正好，风一吹，花瓣落在书页上。最小的那个学生把两条线放在一起比较，"
        "发现开始的时候差别很大，后来越来越小，最后几乎重合。她想了一会儿，说：热得越多，跑得越快；等到和屋子一样暖，"
        "就不再跑了。老师点点头，说这句话已经很接近书上的定律，剩下的只是把快慢算清楚。"
    ),
}
"""Written for this purpose, so that no model has read them."""


class Quality(BaseModel):
    """One model with weights and KV cache in one format each, beside the same model in fp32, both run step by step.

    perplexity: exp of the mean negative log-likelihood of each text's tokens after the first. agreement: of those
    positions, the share where both find the same token likeliest. greedy_same: of `greedy_tokens` tokens written behind
    the same opening, how many are the same before the first that differs.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    model: str
    weights_hash: str
    weights: str
    kv: str = "fp32"
    tokens: dict[Language, int]
    perplexity: dict[Language, float]
    perplexity_fp32: dict[Language, float]
    agreement: dict[Language, Share]
    greedy_tokens: int
    greedy_same: int


def text() -> str:
    """Both texts, one behind the other."""
    return "\n\n".join(TEXTS.values())


@cache
def measured() -> list[Quality]:
    """What was found on the demo model, one for each format of weights or cache."""
    found = files(__name__).joinpath("measured.json").read_bytes()
    return TypeAdapter(list[Quality]).validate_json(found)


def of(model: str, weights: str, kv: str = "fp32") -> Quality | None:
    """What was found for one model with weights and KV cache in these formats, if it was asked."""
    return next((each for each in measured() if (each.model, each.weights, each.kv) == (model, weights, kv)), None)
