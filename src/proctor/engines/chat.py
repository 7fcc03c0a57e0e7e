"""From a prompt to the text a model was trained on: its own chat template, with one placeholder for each image."""

from __future__ import annotations

from typing import Any

from proctor.engines.refusal import one_line, rejected
from proctor.rows import ImagePart, Message, Request, TextPart


class Chat:
    """A model's chat template.

    Serves models that take images (a processor) and text models (a tokenizer) alike, for every engine that needs text.
    """

    def __init__(self, processor: Any, *, takes_images: bool) -> None:
        self.takes_images = takes_images
        self.tokenizer: Any = getattr(processor, "tokenizer", processor)
        self._template = getattr(processor, "chat_template", None) or self.tokenizer.chat_template
        self._placeholders = _placeholders(processor) if takes_images else ()

    def render(self, request: Request) -> str:
        """The prompt as text, ending where the answer begins; each image is one placeholder, not yet expanded.

        Raises:
            Refused: the row names another number of images than it brings, brings images to a text model, writes a
                placeholder into its text, or the template does not take it.
        """
        self._check_images(request)
        try:
            text: str = self.tokenizer.apply_chat_template(
                [self._message(message) for message in request.prompt],
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # a template raises what it likes, e.g. where roles do not alternate
            raise rejected(f"the chat template does not take the prompt: {one_line(error)}") from error
        self._check_placeholders(text, len(request.images))
        return text

    def needs_special_tokens(self, text: str) -> bool:
        """Whether the tokenizer is to add its own special tokens: not where the template has written them already."""
        if not self.takes_images:
            return False
        begin = self.tokenizer.bos_token
        return begin is None or not text.startswith(begin)

    def _message(self, message: Message) -> dict[str, Any]:
        if not self.takes_images:
            return {"role": message.role, "content": joined_text(message)}
        return {"role": message.role, "content": [_part(part) for part in message.parts]}

    def _check_images(self, request: Request) -> None:
        check_image_count(request)
        if request.images and not self.takes_images:
            raise rejected(f"{len(request.images)} images for a model that takes none")
        texts = [part.text for message in request.prompt for part in message.parts if isinstance(part, TextPart)]
        for placeholder in self._placeholders:
            if any(placeholder in text for text in texts):
                raise rejected(f"the prompt's own text contains the model's image placeholder {placeholder!r}")

    def _check_placeholders(self, text: str, images: int) -> None:
        counts = [text.count(placeholder) for placeholder in self._placeholders]
        if counts and images not in counts:
            raise rejected(f"the chat template writes {max(counts)} image placeholders for {images} images")


def check_image_count(request: Request) -> None:
    """Refuses a row whose prompt names another number of images than it brings: engines would answer it silently.

    Raises:
        Refused: ``infer.rejected``.
    """
    if request.image_slots != len(request.images):
        raise rejected(f"the prompt names {request.image_slots} images, {len(request.images)} are given")


def joined_text(message: Message) -> str:
    """The text parts of a message, one after the other."""
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def _part(part: TextPart | ImagePart) -> dict[str, str]:
    return {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}


def _placeholders(processor: Any) -> tuple[str, ...]:
    # Some processors expand the begin-of-image token, most the image token itself; either marks one image.
    owners = (processor, processor.tokenizer)
    found = [getattr(owner, name, None) for owner in owners for name in ("image_token", "boi_token")]
    return tuple(dict.fromkeys(str(token) for token in found if token))
