"""The tiny model's tokenizer and chat template: byte-level BPE over the demo's own language.

Special tokens carry Qwen's spelling and the template Qwen's shape, so every engine treats the model like its big
relatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from proctor.demo.scenes import PROMPT, SYSTEM_TEXT, answer, scene

if TYPE_CHECKING:
    from collections.abc import Iterator

PAD: Final = "<|endoftext|>"
IM_START: Final = "<|im_start|>"
IM_END: Final = "<|im_end|>"
IMAGE_PAD: Final = "<|image_pad|>"
SPECIAL_TOKENS: Final = (
    PAD,
    IM_START,
    IM_END,
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    IMAGE_PAD,
    "<|video_pad|>",
)
"""In id order: the model configuration names these ids."""
MAX_TOKENS: Final = 2048
VOCABULARY: Final = 512

CHAT_TEMPLATE: Final = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['content'] is string %}"
    "{{- message['content'] }}"
    "{%- else %}"
    "{%- for part in message['content'] %}"
    "{%- if part['type'] == 'image' or 'image' in part or 'image_url' in part %}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif 'text' in part %}"
    "{{- part['text'] }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- endif %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- endif %}"
)

# A number that opens a point, one that ends it, a word, punctuation, a digit, a white space: a whole offset such as
# ` (-0.6,` becomes one token, which keeps answers short enough for a CPU.
_PIECES = r" ?\(?[+-]\d\.\d,|\d\.0\)| ?\p{L}+|[^\s\p{L}\d]+|\d|\s"
_CORPUS_FIRST_SCENE = 20_000_000
_CORPUS_SCENES = 4_000
_FIXED_TEXT_COPIES = 50


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Train the tokenizer on answers of scenes no other range uses, and on the fixed parts of a conversation."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=IM_END,
        pad_token=PAD,
        model_max_length=MAX_TOKENS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def _corpus() -> Iterator[str]:
    for number in range(_CORPUS_FIRST_SCENE, _CORPUS_FIRST_SCENE + _CORPUS_SCENES):
        yield answer(scene(number))
    for _ in range(_FIXED_TEXT_COPIES):
        yield from (PROMPT, SYSTEM_TEXT, "user", "assistant", "system", "\n")
