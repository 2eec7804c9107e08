"""One right call of every public method of the public classes: `CLASSES[part][name]`.

An entry is how an instance is made and the arguments of its methods; `__init__` stands for the class itself.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from fuzz_examples import CODES, IDS, MORE_CODES, PACKED, RGBA, ROWS, SQUARE, TEXTS, TUPLES, X, tensor

RNG = np.random.default_rng(22)
MANY_ROWS = RNG.normal(size=(260, 4)).round(3)
PAIRS = np.stack([np.arange(12)] * 2, 1)
IMAGES, CAPTIONS = RNG.exponential(size=(2, 12, 4)).round(3)
HALF = X.float()
TOKEN_IDS = torch.tensor([[1, 4, 5, 9, 0], [1, 6, 9, 0, 0]])
PICTURES = torch.from_numpy(RGBA[:2, ..., :3]).permute(0, 3, 1, 2).contiguous()
WORDS = ["red cat", "a dog"]
BATCH = tensor(TUPLES[:3], torch.float32)  # three modalities, B, F


def new_tokenizer():
    from brace_nb.foundations import ByteBPE

    return ByteBPE([(97, 98)], 300, 8)


@cache
def tower():
    "A text tower of a few words."
    from made_tower import text_tower

    return text_tower()[0]


def encoder():
    from brace_nb.foundations import EncoderConfig, build_encoder

    shape = dict(embed_dim=8, image_model="test_resnet", text_width=16, text_heads=1, vocab_size=300)
    return build_encoder(EncoderConfig(**shape, context_length=8), new_tokenizer())


def on_device():
    from brace_nb.foundations import OnDevice

    return OnDevice(torch.nn.Linear(4, 3))


def preprocess():
    from brace_nb.foundations import Preprocess

    return Preprocess(8)


def fetch(places):
    "Pictures, encoded."
    import io

    from PIL import Image

    def encoded(picture):
        held = io.BytesIO()
        Image.fromarray(picture).save(held, "png")
        return held.getvalue()

    return [encoded(RGBA[place]) for place in places]


def photos():
    from brace_nb.foundations import Photos

    return Photos({4: 0, 6: 1}, fetch)


def spectrograms():
    from brace_nb.foundations import Spectrograms

    return Spectrograms(np.array([2, 5, 9]), RGBA[..., 0])


def sprites():
    from brace_nb.foundations import Sprites

    return Sprites(dict(zip((4, 6, 7), fetch([0, 1, 2]))), 8)


@cache
def tuples():
    from brace_nb.foundations import load_emoji

    return load_emoji()


def head(name, *options):
    "A head of four features."
    import brace_nb.codes

    return lambda: getattr(brace_nb.codes, name)(*options)


def common_space():
    from brace_nb.codes import CommonSpace

    return CommonSpace(HALF[0], torch.eye(4), HALF, HALF)


def code_encoder():
    from brace_nb.codes import CodeEncoder, HeadTraining, RandomStart

    how = dict(start=RandomStart(hidden=8), training=HeadTraining(epochs=1, batch_size=4))
    return CodeEncoder(16, **how).fit(IMAGES, CAPTIONS, validation=(IMAGES, CAPTIONS))


def rotated_encoder():
    from brace_nb.codes import CodeEncoder

    return CodeEncoder.preset("rotation", dim=16, epochs=0).fit(IMAGES, CAPTIONS)


def code_index():
    from brace_nb.codes import CodeIndex

    return CodeIndex(16).add(np.arange(6), CODES)


def inverted_index():
    from brace_nb.codes import InvertedIndex

    return InvertedIndex(CODES)


def quantizer():
    from brace_nb.codes import ProductQuantizer

    return ProductQuantizer(2, steps=1).fit(MANY_ROWS)


OF_CENTERS = dict(
    __init__=dict(pieces=2, seed=0, steps=1),
    decode=dict(codes=np.array([[1, 2], [3, 4]], np.uint8)),
    encode=dict(x=ROWS),
    fit=dict(x=MANY_ROWS),
    fit_transform=dict(X=MANY_ROWS),
    restored=dict(x=ROWS),
    set_output=dict(transform="pandas"),
    set_params=dict(pieces=1, seed=1),
    transform=dict(X=ROWS),
    turned=dict(x=ROWS),
)


def additive():
    from brace_nb.codes import AdditiveQuantizer

    return AdditiveQuantizer(2, steps=1).fit(MANY_ROWS)


def principal():
    from brace_nb.codes import PrincipalBytes

    return PrincipalBytes(2).fit(MANY_ROWS)


def entry(registry, name):
    "An entry of a registry of the codes."
    import brace_nb.codes

    return lambda: getattr(brace_nb.codes, registry)[name]


def fitted_code():
    from brace_nb.codes import fit_code

    return fit_code("rotation", ROWS, 1)


def cube_scores():
    from brace_nb.ndim import CubeScores

    return CubeScores([ROWS, ROWS, ROWS])


def network(name, **options):
    import brace_nb.assignment

    return lambda: getattr(brace_nb.assignment, name)(**options)


def float_format():
    from brace_nb.assignment import FLOAT_FORMATS

    return FLOAT_FORMATS["bf16"]


def minibatch_cka():
    from brace_nb.evaluation import MinibatchCKA

    return MinibatchCKA()


def streaming_cka():
    from brace_nb.evaluation import StreamingCKA

    return StreamingCKA()


def aligned():
    from brace_nb.grounding import AlignedTuples

    return AlignedTuples(dict(a=ROWS, b=ROWS[:, ::-1].copy(), c=ROWS), labels=np.arange(6) % 2)


def of_grounding(name, **options):
    "An instance of a class of this part."
    import brace_nb.grounding

    return lambda: getattr(brace_nb.grounding, name)(**options)


def whole_model():
    from brace_nb.grounding import WholeModel

    return WholeModel(tower(), 300, 9, layers=1, heads=2)


STUDY = dict(factors={"rate": dict(low=1e-3, high=1.0, log=True), "kind": ["a", "b"]}, runs=4)


def study():
    from brace_nb.grounding import Study

    return Study(**STUDY)


def study_store():
    from brace_nb.grounding import StudyStore

    return StudyStore(study())


FEATURES = dict(features=4, embed_dim=3, layers=1, width=8, seed=0)
DECODER = dict(kind="queries", dim=4, grid=4, width=8, layers=1, seed=0)
NOISY = dict(n=3, items=6, features=4, noise=0.2, seed=0)
SETS = dict(classes=3, queries=4, width=8, layers=1, grid=1, seed=0)
STUDENTS = dict(seeds=[0, 1], vocabulary=12, dim=3, end=9, width=8, heads=1, layers=1, longest=8)
BAGS = dict(languages=1, vocabulary=10, dim=4, seed=0)
OBJECTIVE = dict(n=3, loss="axis", measure="pairwise", batch_size=3, embed_dim=5, scale=5.0, seed=0)
CUBE_LOSS = dict(
    n=3, measure="pairwise", kind="slice", batch_size=3, scale=5.0, projection=None, features=5, options={}
)
HEAD = dict(states=HALF, targets=torch.tensor([0, 1, 2, 0, 1, 2]), classes=3, steps=4, batch_size=4)
HEAD |= dict(learning_rate=0.02, weight_decay=0.1, held_out=0.3, seed=0)
SENTENCE = dict(bridge="linear", layers=1, heads=2, temperature=1.0, seed=0)
NETWORK = dict(kind="linear", shape=(4, 4), blocks=1, width=8, seed=0)
SIX = dict(seed=0, n=4, network="thesis")
ENCODER = dict(embed_dim=8, image_model="test_resnet", image_size=32, text_width=16, text_layers=1)
TRAINING = dict(
    epochs=2, batch_size=4, learning_rate=0.01, gamma=0.9, weight_decay=0.01, patience=2, bits=3.0
)
PULLS = dict(contrastive=1.0, scale=5.0, align=0.5, target="better", uniform=0.5, distill=0.5)

CLASSES = {
    "core": {},
    "foundations": dict(
        ByteBPE=(
            new_tokenizer,
            dict(
                __init__=dict(merges=[(97, 98)], vocab_size=300, context_length=8),
                __call__=dict(texts=TEXTS),
                decode=dict(ids=[97, 98]),
                encode=dict(text="abc"),
                pad=dict(rows=[[1, 2], [3]], length=4),
            ),
        ),
        Encoder=(
            encoder,
            dict(
                encode_images=dict(images=RGBA[..., :3], batch_size=2),
                encode_texts=dict(texts=WORDS, batch_size=1),
            ),
        ),
        EncoderConfig=(None, dict(__init__=ENCODER | dict(text_heads=2, vocab_size=300, context_length=8))),
        ObjectiveConfig=(
            None,
            dict(__init__=dict(projector=8, temperature=0.2, momentum=0.9, clusters=(2, 3), cluster_every=5)),
        ),
        OnDevice=(
            on_device,
            dict(
                __init__=dict(encoder=torch.nn.Linear(4, 3), device="cpu", precision="auto"),
                forward=dict(x=HALF),
            ),
        ),
        Photos=(
            photos,
            dict(__init__=dict(places={4: 0}, fetch=fetch), read=dict(ids=np.array([4, 6]), size=4)),
        ),
        Preprocess=(preprocess, dict(__init__=dict(size=8), __call__=dict(images=RGBA[..., :3]))),
        Spectrograms=(
            spectrograms,
            dict(
                __init__=dict(ids=np.array([2, 5, 9]), levels=RGBA[..., 0]), read=dict(ids=np.array([5, 9]))
            ),
        ),
        Sprites=(
            sprites,
            dict(
                __init__=dict(encoded={4: fetch([0])[0]}, native=8), read=dict(ids=np.array([6, 4]), size=4)
            ),
        ),
        TrainingConfig=(
            None,
            dict(
                __init__=dict(
                    steps=3,
                    batch_size=4,
                    split="val",
                    designers=("noto",),
                    languages=("en",),
                    learning_rate=0.01,
                )
            ),
        ),
        Tuples=(
            tuples,
            dict(
                available=dict(designer="noto"),
                captions=dict(lang="en", kind="name", ids=np.array([2, 5])),
                coverage=dict(ids=np.array([2, 5])),
                ids=dict(split="val"),
                images=dict(designer="noto", ids=np.array([2, 5]), size=16),
                labels=dict(column="category", ids=np.array([2, 5])),
                names=dict(lang="en", ids=np.array([2, 5]), kind="name"),
            ),
        ),
    ),
    "codes": dict(
        BinaryHead=(
            head("BinaryHead", 4, 8, 6),
            dict(
                __init__=dict(in_features=4, hidden_features=8, out_features=6, layers=1),
                forward=dict(x=HALF),
            ),
        ),
        TernaryHead=(
            head("TernaryHead", 4, 8, 6),
            dict(
                __init__=dict(in_features=4, hidden_features=8, out_features=6, layers=1),
                forward=dict(x=HALF),
            ),
        ),
        RotationHead=(
            head("RotationHead", torch.eye(4)),
            dict(__init__=dict(rotation=torch.eye(4), sharpness=5.0), forward=dict(x=HALF)),
        ),
        CommonSpace=(
            common_space,
            dict(
                __init__=dict(mean=HALF[0], weights=torch.eye(4), keys=HALF, values=HALF, width=5.0),
                forward=dict(x=HALF),
                recall=dict(x=HALF),
            ),
        ),
        Code=(entry("CODES", "rotation"), dict(bytes=dict(features=16, size=2))),
        CodeEncoder=(
            code_encoder,
            dict(
                __init__=dict(dim=16, container="corner", most=3, seed=0, precision="float32"),
                code_lengths=dict(packed=PACKED),
                embed=dict(x=IMAGES, modality="image"),
                embed_images=dict(x=IMAGES),
                embed_texts=dict(x=CAPTIONS),
                encode=dict(x=IMAGES, modality="text"),
                encode_images=dict(x=IMAGES),
                encode_texts=dict(x=CAPTIONS),
                fit=dict(X=IMAGES, y=CAPTIONS, pairs=PAIRS, validation=(IMAGES, CAPTIONS)),
                fit_transform=dict(X=IMAGES, y=CAPTIONS),
                loss=dict(images=IMAGES, texts=CAPTIONS),
                preset=dict(name="post"),
                query_tables=dict(queries=IMAGES, modality="image"),
                recall=dict(images=IMAGES, texts=CAPTIONS, k=2),
                score=dict(X=IMAGES, y=CAPTIONS),
                scores=dict(queries=IMAGES, codes=CODES, modality="image"),
                set_output=dict(transform="pandas"),
                set_params=dict(dim=8, container="sign"),
                similarity=dict(a=CODES, b=MORE_CODES),
                transform=dict(X=IMAGES, modality="image", output="bool"),
                use=dict(which="last"),
            ),
        ),
        CodeFormat=(entry("CODE_FORMATS", "packed"), dict(mean_bytes=dict(codes=CODES))),
        CodeIndex=(
            code_index,
            dict(
                __init__=dict(
                    dim=16, metric="jaccard", connectivity=4, expansion_add=8, expansion_search=8, threads=1
                ),
                add=dict(ids=np.arange(6, 12), codes=MORE_CODES),
                remove=dict(ids=np.array([1, 3])),
                search=dict(
                    codes=CODES, k=2, among=np.array([1, 3, 4]), rescore=(IMAGES[:6], ROWS), shortlist=2
                ),
                within=dict(codes=CODES, similarity=0.3),
            ),
        ),
        Container=(
            entry("CONTAINERS", "corner"),
            dict(
                lengths=dict(packed=torch.from_numpy(PACKED), dim=16, book={}),
                tables=dict(queries=HALF, dim=4, book={}),
                unit=dict(x=HALF.abs(), most=2),
            ),
        ),
        FittedCode=(fitted_code, dict(asked=dict(x=ROWS, y=ROWS), similarity=dict(x=ROWS, y=ROWS))),
        HeadObjective=(None, dict(__init__=PULLS | dict(distill_scale=5.0))),
        HeadTraining=(head("HeadTraining"), dict(__init__=TRAINING, rate=dict(step=1, per_epoch=4))),
        InvertedIndex=(
            inverted_index,
            dict(__init__=dict(codes=CODES), search=dict(queries=MORE_CODES, k=2)),
        ),
        PrincipalBytes=(
            principal,
            dict(
                __init__=dict(bytes=2),
                decode=dict(codes=np.array([[1, 2], [-3, 4]], np.int8)),
                encode=dict(x=ROWS),
                fit=dict(x=MANY_ROWS),
                fit_transform=dict(X=MANY_ROWS),
                restored=dict(x=ROWS),
                set_output=dict(transform="pandas"),
                set_params=dict(bytes=1),
                transform=dict(X=ROWS),
                turned=dict(x=ROWS),
            ),
        ),
        AdditiveQuantizer=(additive, OF_CENTERS),
        ProductQuantizer=(quantizer, OF_CENTERS),
        RandomStart=(None, dict(__init__=dict(hidden=8, layers=1))),
        RotationStart=(None, dict(__init__=dict(sharpness=5.0, spread=1.0, ridge=0.3, width=5.0))),
    ),
    "ndim": dict(
        CubeScores=(
            cube_scores,
            dict(__init__=dict(xs=[ROWS, ROWS], measure="pairwise"), fits=dict(part=0.5)),
        ),
    ),
    "assignment": dict(
        AssignmentNetwork=(
            network("AssignmentNetwork", **NETWORK),
            dict(__init__=NETWORK, forward=dict(x=tensor(SQUARE, torch.float32)[None])),
        ),
        FloatFormat=(float_format, dict(rounded=dict(x=HALF))),
        SixLayerNetwork=(
            network("SixLayerNetwork", **SIX),
            dict(__init__=SIX, forward=dict(x=torch.full((2, 16), 0.5))),
        ),
    ),
    "evaluation": dict(
        MinibatchCKA=(
            minibatch_cka,
            dict(update=dict(layers_a=[ROWS], layers_b={"second": ROWS[::-1].copy()})),
        ),
        StreamingCKA=(streaming_cka, dict(update=dict(x=ROWS, y=ROWS[::-1].copy()))),
    ),
    "grounding": dict(
        AlignedTuples=(
            aligned,
            dict(
                __init__=dict(
                    views=dict(a=ROWS, b=ROWS), present=dict(a=np.arange(6) > 0), labels=np.arange(6) % 2
                ),
                only=dict(names=["a", "c"]),
                rows=dict(rows=np.array([0, 2, 5])),
            ),
        ),
        FeatureEncoder=(
            of_grounding("FeatureEncoder", **FEATURES),
            dict(__init__=FEATURES, forward=dict(x=HALF)),
        ),
        LanguageHead=(
            of_grounding("LanguageHead", **HEAD),
            dict(
                __init__=HEAD,
                forward=dict(states=HALF),
                loss=dict(states=HALF, targets=torch.tensor([0, 1, 2, 0, 1, 2])),
            ),
        ),
        MaskDecoder=(of_grounding("MaskDecoder", **DECODER), dict(__init__=DECODER, forward=dict(z=HALF))),
        NoisyEncoders=(
            of_grounding("NoisyEncoders", **NOISY),
            dict(
                __init__=NOISY,
                draw=dict(rows=2),
                forward=dict(items=torch.tensor([0, 4]), noise=0.1, drawn=torch.full((3, 2, 4), 0.5)),
            ),
        ),
        SetPredictor=(
            of_grounding("SetPredictor", **SETS),
            dict(__init__=SETS, forward=dict(images=PICTURES)),
        ),
        Study=(None, dict(__init__=STUDY | dict(metric="score", sampler="random", seed=0))),
        StudyStore=(
            study_store,
            dict(
                __init__=dict(study=study()),
                add=dict(number=0, values=dict(rate=0.1, kind="a"), outcomes=dict(score=0.5), error="none"),
            ),
        ),
        TextStudents=(
            of_grounding("TextStudents", **STUDENTS),
            dict(
                __init__=STUDENTS,
                states=dict(tokens=TOKEN_IDS.expand(2, 2, 5), at=torch.zeros(2, 2, 1).long()),
            ),
        ),
        TokenBags=(
            of_grounding("TokenBags", **BAGS),
            dict(__init__=BAGS, forward=dict(images=HALF[:2], bags=[IDS])),
        ),
        TupleLoss=(of_grounding("TupleLoss", **CUBE_LOSS), dict(__init__=CUBE_LOSS, forward=dict(xs=BATCH))),
        TupleObjective=(
            of_grounding("TupleObjective", **OBJECTIVE),
            dict(
                __init__=OBJECTIVE,
                asked=dict(xs=list(BATCH)),
                forward=dict(xs=list(BATCH)),
                logits=dict(xs=list(BATCH)),
                projected=dict(xs=list(BATCH)),
            ),
        ),
        WholeModel=(
            whole_model,
            dict(
                __init__=dict(tower=tower(), vocabulary=300, end=9) | SENTENCE,
                forward=dict(ids=TOKEN_IDS),
                states=dict(ids=TOKEN_IDS),
            ),
        ),
    ),
}

# Classes and methods that are not called, and why
LEFT_OUT = {
    "core": {
        "ArrayRule": "rules; the other parts are called with what they refuse",
        "Bar EarlyStopping Stack TrainingState": "of the training loop, on which all trained results depend",
        "MatrixFile": "made by `open_matrix`",
        "Registry": "filled when a part is imported",
    },
    "foundations": {
        "CaptionSampler PictureSampler PrototypeObjective TupleBatches TwoViews": "made by a training",
        "Clustering": "made by `cluster`",
        "EmbeddingShards": "files",
        "Encoder.__init__": "made by `build_encoder` and `load_encoder`",
        "OpenClipPreprocess": "made for a model of open_clip",
        "Tuples.__init__ Tuples.embeddings Tuples.speech Tuples.spoken": "files, of other data sets",
    },
    "codes": {
        "Code.fits Code.similarity Container.pack Container.unpack": "fields that hold a function",
        "CodeEncoder.common": "needs a `RotationStart`: tests/test_codes_rotation.py",
        "CodeEncoder.load CodeEncoder.save CodeIndex.load CodeIndex.save EmojiEmbeddings": "files",
        "CodeEncoder.get_feature_names_out PrincipalBytes.get_feature_names_out": "ignores its argument",
        "AdditiveQuantizer.get_feature_names_out": "ignores its argument",
        "ProductQuantizer.get_feature_names_out": "ignores its argument",
        "CodeStatistics FittedCode.__init__ UnseenPairs": "results",
        "RandomStart.empty RandomStart.first": "called by `CodeEncoder.fit`",
        "RotationStart.empty RotationStart.first": "called by `CodeEncoder.fit`",
    },
    "ndim": {
        "CellProblem CubeProblem LineProblem LossBatch": "parts of `cube_loss`",
        "CubeScores.block CubeScores.check_memory CubeScores.parts": "parts of `cube_loss`",
    },
    "assignment": {
        "AssignmentMethod": "called by `assign`",
        "PrecisionGrid": "reads what an experiment wrote",
        "SentenceEncoder": "a model",
    },
    "evaluation": {"ModelComparison": "a result"},
    "grounding": {
        "FeatureForm.read PictureForm.read TableEncoders.embed TextForm.read TokenForm.read": "files",
        "CaptionBatches EncoderRun Looks Watch": "made by a training",
        "ObjectScenes RelationScenes Scenes TrainedEncoders": "results",
        "PictureTower TextTower": "take the towers of a model",
        "TextStudents.forward TextStudents.give_back TextStudents.only": "of `Stack`",
        "TupleLoss.projected WholeModel.inputs": "called by `forward`",
    },
}

# Methods that still fail without a name, and why
_TRAINED = "in a module that trained encoders depend on: a change makes every result stale"
_LOSSES = "in a module that all losses on cubes depend on"
UNTOUCHED = {
    "core": {},
    "foundations": {
        "ByteBPE.__call__ ByteBPE.__init__ ByteBPE.decode ByteBPE.pad Encoder.encode_texts": _TRAINED,
        "ObjectiveConfig.__init__ Preprocess.__init__ Sprites.__init__ Sprites.read": _TRAINED,
        "TrainingConfig.__init__ Tuples.available Tuples.captions Tuples.ids Tuples.images": _TRAINED,
        "Spectrograms.__init__ Spectrograms.read Tuples.labels Tuples.names": _TRAINED,
        "OnDevice.forward": "its encoder, of any kind, says what it takes",
        "Photos.__init__": "a place is whatever `fetch` reads",
    },
    "codes": {},
    "ndim": {"CubeScores.__init__ CubeScores.fits": _LOSSES},
    "assignment": {},
    "evaluation": {"StreamingCKA.update": "NaN is told by `compute`, which warns and gives NaN"},
    "grounding": {
        "AlignedTuples.__init__ AlignedTuples.only AlignedTuples.rows": _TRAINED,
        "FeatureEncoder.__init__ FeatureEncoder.forward": _TRAINED,
        "StudyStore.add": "a run that diverged has any outcome, and counts as failed",
        "TupleObjective.__init__ TupleObjective.asked TupleObjective.forward": _TRAINED,
        "TupleObjective.logits TupleObjective.projected": _TRAINED,
    },
}
