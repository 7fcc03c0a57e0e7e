"""Loads what turns text and images into model inputs, with or without torchvision."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoProcessor, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from proctor.rows import UserError


def takes_images(directory: Path, *, trust_remote_code: bool = False) -> bool:
    """Whether the model in `directory` is of the image-text-to-text kind, by its ``model_type``."""
    config = AutoConfig.from_pretrained(directory, trust_remote_code=trust_remote_code)
    return config.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES


def load_processor(directory: Path, *, images: bool, trust_remote_code: bool = False) -> Any:
    """The model's processor, or its tokenizer if it takes no images; pads on the left, as generation needs it."""
    if images:
        processor = _image_processor(directory, trust_remote_code)
        tokenizer = processor.tokenizer
    else:
        processor = tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=trust_remote_code)
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return processor


def _image_processor(directory: Path, trust_remote_code: bool) -> Any:
    if find_spec("torchvision") is not None:
        return AutoProcessor.from_pretrained(directory, trust_remote_code=trust_remote_code)
    try:
        return AutoProcessor.from_pretrained(directory, trust_remote_code=trust_remote_code)
    except ImportError:  # the processor insists on a video part, and video needs torchvision
        return _processor_without_video(directory, trust_remote_code)


def _processor_without_video(directory: Path, trust_remote_code: bool) -> Any:
    """The model's own processor class around Pillow's image processor; only its video part is missing."""
    image_processor = AutoImageProcessor.from_pretrained(directory, trust_remote_code=trust_remote_code)
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=trust_remote_code)
    return _without_video(_processor_class(directory))(
        image_processor=image_processor,
        tokenizer=tokenizer,
        video_processor=None,
        chat_template=tokenizer.chat_template,
    )


def _processor_class(directory: Path) -> Any:
    config, _ = transformers.ProcessorMixin.get_processor_dict(directory)
    name = config.get("processor_class")
    if name is None:
        config, _ = transformers.image_processing_base.ImageProcessingMixin.get_image_processor_dict(directory)
        name = config.get("processor_class")
    found = getattr(transformers, name or "", None)
    if found is None:
        raise UserError(
            f"the processor of {directory} ({name or 'unnamed'}) needs torchvision",
            where="engine",
            fix="install the torchvision that matches torch",
        )
    return found


def _without_video(processor_class: Any) -> Any:
    class WithoutVideo(processor_class):
        def check_argument_for_proper_class(self, argument_name: str, argument: object) -> Any:
            if argument_name == "video_processor" and argument is None:
                return type(None)
            return super().check_argument_for_proper_class(argument_name, argument)

    WithoutVideo.__name__ = processor_class.__name__
    return WithoutVideo
