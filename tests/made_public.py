"""Miniatures of the public data and weights that the profile `paper` reads, each in its true form on disk.

Pictures are colored squares, weights are random: what is tested is that every format is read and every
experiment runs, never what it finds.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

COLORS = dict(red=(220, 40, 40), green=(40, 200, 60), blue=(50, 80, 230), yellow=(240, 220, 40))
CIFAR = "airplane automobile bird cat deer dog frog horse ship truck".split()


def picture(number, size=(48, 40)):
    "A square of one color on another, different for every number."
    rng = np.random.default_rng(number)
    x = np.full((size[1], size[0], 3), list(COLORS.values())[number % 4], np.uint8)
    top, left = rng.integers(0, size[1] - 12), rng.integers(0, size[0] - 12)
    x[top : top + 12, left : left + 12] = rng.integers(0, 255, 3)
    return Image.fromarray(x)


def caption(number):
    return f"a square of number {number} on {list(COLORS)[number % 4]}"


def save_picture(path, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(number).save(path, "JPEG", quality=95)


# --- CIFAR-10: what Python 2's cPickle wrote, instruction by instruction


def _text(s):
    return b"U" + bytes([len(s)]) + s.encode("latin-1")


def _number(n):
    return (
        b"K" + bytes([n])
        if n < 256
        else b"M" + struct.pack("<H", n)
        if n < 65536
        else b"J" + struct.pack("<i", n)
    )


def _texts_or_numbers(values):
    return b"](" + b"".join(_text(v) if isinstance(v, str) else _number(v) for v in values) + b"e"


def _array(a):
    dtype = (
        b"cnumpy\ndtype\n("
        + _text("u1")
        + b"K\x00K\x01tR(K\x03"
        + _text("|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + _text("b") + b"tR"
    shape = b"(" + b"".join(map(_number, a.shape)) + b"t"
    raw = b"T" + struct.pack("<i", a.size) + a.tobytes()
    return empty + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"


def python2_pickle(values):
    "Protocol 2 of a dict, as Python 2 wrote it: byte strings everywhere."
    body = b""
    for key, value in values.items():
        code = (
            _array(value)
            if isinstance(value, np.ndarray)
            else _text(value)
            if isinstance(value, str)
            else None
        )
        body += _text(key) + (code if code is not None else _texts_or_numbers(value))
    return b"\x80\x02}(" + body + b"u."


def make_cifar10(folder, per_class=6):
    place = folder / "cifar-10-batches-py"
    place.mkdir(parents=True)
    labels = [i % 10 for i in range(10 * per_class)]
    planes = [np.asarray(picture(i, (32, 32))).transpose(2, 0, 1).reshape(-1) for i in labels]
    batch = dict(batch_label="testing batch 1 of 1", labels=labels, data=np.stack(planes))
    batch["filenames"] = [f"{CIFAR[i]}_s_{k}.png" for k, i in enumerate(labels)]
    for name in ("test_batch", "data_batch_1"):
        (place / name).write_bytes(python2_pickle(batch))
    meta = dict(label_names=CIFAR, num_vis=[3072])
    (place / "batches.meta").write_bytes(python2_pickle(meta))


# --- weights


def tiny_clip(seed=0, patch=16):
    "A CLIP of the smallest shape whose heads have 64 dimensions, as OpenAI's layout wants."
    from brace_nb.foundations import import_open_clip

    torch.manual_seed(seed)
    vision = dict(layers=4, width=64, patch_size=patch, image_size=32)
    text = dict(context_length=77, vocab_size=49408, width=64, heads=1, layers=2)
    return import_open_clip().model.CLIP(32, vision, text, quick_gelu=True)


class _Holder(torch.nn.Module):
    def forward(self):
        return torch.zeros(1)


def torchscript(state):
    "A TorchScript archive of these tensors under these names, as OpenAI distributes its weights."
    top = _Holder()
    for name, value in state.items():
        *path, last = name.split(".")
        module = top
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, _Holder())
            module = getattr(module, part)
        module.register_buffer(last, value.clone())
    return torch.jit.script(top)


def make_clips(folder):
    from safetensors.torch import save_file

    for name in ("clip_b32", "clip_b16", "clip_l14"):
        (folder / name).mkdir(parents=True)
    about = dict(
        input_resolution=torch.tensor(32), context_length=torch.tensor(77), vocab_size=torch.tensor(49408)
    )
    half = {k: v.half() for k, v in tiny_clip(0).state_dict().items() if k != "attn_mask"}
    torch.jit.save(torchscript(half | about), folder / "clip_b32/ViT-B-32.pt")
    ours = {f"module.{k}": v for k, v in tiny_clip(1, 8).state_dict().items()}
    torch.save(dict(epoch=1, state_dict=ours), folder / "clip_b16/open_clip_pytorch_model.bin")
    state = {k: v.contiguous() for k, v in tiny_clip(2, 8).state_dict().items()}
    save_file(state, folder / "clip_l14/open_clip_model.safetensors")
    (folder / "clip_l14/open_clip_config.json").write_text(json.dumps(dict(model_cfg=dict(quick_gelu=True))))


def make_detr(folder):
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    torch.manual_seed(0)
    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 8, 8],
        depths=[1, 1, 1, 1],
        out_features=["stage4"],
        layer_type="basic",
    )
    layers = dict(encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
    sizes = dict(d_model=16, encoder_ffn_dim=16, decoder_ffn_dim=16, num_queries=12, num_labels=91)
    plain = dict(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None)
    config = DetrConfig(backbone_config=backbone, **plain, **layers, **sizes)
    DetrForObjectDetection(config).save_pretrained(folder)


def make_bert(folder):
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    folder.mkdir(parents=True)
    letters = [chr(c) for c in range(97, 123)]
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{c}" for c in letters),
        "the",
        "a",
        "cat",
    ]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="BertTokenizer")))
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)


# --- pictures and captions


def _member(tar, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def make_conceptual_captions(folder, pairs=72, shards=2):
    "Shards as img2dataset writes them: KEY.jpg, KEY.txt and KEY.json, and a table of statistics beside."
    folder.mkdir(parents=True)
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:05}.tar", "w") as tar:
            for i in range(shard, pairs, shards):
                out = io.BytesIO()
                picture(i).save(out, "JPEG")
                key = f"{shard:05}{i:04}"
                about = dict(caption=caption(i), url=f"x{i}", key=key, status="success", width=48, height=40)
                _member(tar, f"{key}.jpg", out.getvalue())
                _member(tar, f"{key}.txt", caption(i).encode())
                _member(tar, f"{key}.json", json.dumps(about).encode())
        (folder / f"{shard:05}_stats.json").write_text(
            json.dumps(dict(count=pairs // shards, successes=pairs))
        )


def make_flickr30k(folder, pictures=16):
    lines = ["image_name| comment_number| comment"]
    for i in range(pictures):
        save_picture(folder / f"flickr30k-images/{1000 + i}.jpg", i)
        lines += [f"{1000 + i}.jpg| {k}| {caption(i)} , view {k} ." for k in range(5)]
    (folder / "results.csv").write_text("\n".join(lines))


def make_imagenet(folder, per_class=3):
    lines = []
    for k, color in enumerate(COLORS):
        for i in range(per_class):
            save_picture(folder / f"val/n0{k}/ILSVRC2012_val_{i:08}.JPEG", k + 4 * i)
        lines.append(f"n0{k} {color}, {color} thing")
    (folder / "LOC_synset_mapping.txt").write_text("\n".join(lines))


def make_coco(folder, train=24, val=16):
    (folder / "annotations").mkdir(parents=True)
    for split, numbers in (("train", range(train)), ("val", range(100, 100 + val))):
        images, captions, objects = [], [], []
        for i in numbers:
            name = f"{i:012}.jpg"
            save_picture(folder / f"{split}2017/{name}", i)
            images.append(dict(id=i, file_name=name, width=48, height=40, license=1))
            captions += [dict(id=10 * i + k, image_id=i, caption=f"{caption(i)}, view {k}") for k in range(5)]
            for k in range(3):
                one = dict(id=10 * i + k, image_id=i, bbox=[4 * k, 5, 12, 12], category_id=1 + (i + k) % 4)
                objects.append(one | dict(iscrowd=int(k == 2), area=144))
        categories = [dict(id=k + 1, name=c, supercategory="color") for k, c in enumerate(COLORS)]
        whole = dict(info={}, licenses=[], images=images)
        place = folder / "annotations"
        (place / f"captions_{split}2017.json").write_text(json.dumps(whole | dict(annotations=captions)))
        content = whole | dict(annotations=objects, categories=categories)
        (place / f"instances_{split}2017.json").write_text(json.dumps(content))


def make_coco_cn(folder, train=24):
    place = folder / "coco-cn-version1805v1.1"
    place.mkdir(parents=True)
    lines = [f"COCO_train2014_{i:012}#0\t第{i}个方块在彩色背景上" for i in range(0, train, 2)]
    (place / "imageid.human-written-caption.txt").write_text("\n".join(lines), encoding="utf-8")
    (place / "coco-cn_train.txt").write_text("\n".join(line.split("#")[0] for line in lines))


def xlsx(path, rows):
    "A sheet with shared texts, as Excel writes it."
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    texts = list(dict.fromkeys(v for row in rows for v in row if isinstance(v, str)))
    cells = [
        "".join(
            f'<c t="s"><v>{texts.index(v)}</v></c>' if isinstance(v, str) else f"<c><v>{v}</v></c>"
            for v in row
        )
        for row in rows
    ]
    sheet = (
        f"<worksheet {main}><sheetData>"
        + "".join(f"<row>{c}</row>" for c in cells)
        + "</sheetData></worksheet>"
    )
    shared = f"<sst {main}>" + "".join(f"<si><t>{t}</t></si>" for t in texts) + "</sst>"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
        archive.writestr("xl/sharedStrings.xml", shared)


def make_coco_es(folder, train=24):
    rows = [["image_id", "id", "caption"]]
    rows += [
        [i, 10 * i + k, f"un cuadrado número {i}, vista {k}"] for i in range(0, train, 3) for k in range(5)
    ]
    xlsx(folder / "data/train_human_spanish.xlsx", rows)


def make_wmt(folder):
    right = [f"the cat number {w} sat" for w in ("one", "two", "three", "four", "five", "six")]
    files = {"sources/de-en.txt": right, "references/de-en.refA.txt": right}
    for k in range(5):
        damaged = [" ".join(line.split()[k:]) or "a" for line in right]
        files[f"system-outputs/de-en/system{k}.txt"] = damaged
    files["human-scores/de-en.da.sys.score"] = [f"system{k}\t{1 - k / 5}" for k in range(5)]
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")


def make_public(folder):
    "All of it below one folder."
    folder = Path(folder)
    make_cifar10(folder / "cifar10")
    make_clips(folder)
    make_conceptual_captions(folder / "conceptual_captions")
    make_flickr30k(folder / "flickr30k")
    make_imagenet(folder / "imagenet")
    make_coco(folder / "coco")
    make_coco_cn(folder / "coco_cn")
    make_coco_es(folder / "coco_es")
    make_wmt(folder / "wmt")
    make_detr(folder / "detr")
    make_bert(folder / "bert")
    save_picture(folder / "dog/dog.jpg", 2)
    return folder
