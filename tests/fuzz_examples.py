"""One valid call of every public function: `EXAMPLES[part][name]` are its arguments.

A list is the positional arguments, a dict the named ones; `Repeat` is a variant of a function
under another name. Values are small, and made once: the fuzz copies them for every call.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

RNG = np.random.default_rng(20)
ROWS, OTHERS = RNG.normal(size=(2, 6, 4)).round(3)
POSITIVE = np.abs(ROWS)
TUPLES = RNG.normal(size=(4, 3, 5)).round(3)
COST = RNG.uniform(size=(2, 4, 4)).round(3)
SQUARE = COST[0]
LABELS = np.array([0, 1, 2, 0, 1, 2])
CODES, MORE_CODES = RNG.random((2, 6, 16)) < 0.4
PACKED = np.packbits(CODES, -1, bitorder="little")
BYTE_TABLES = np.random.default_rng(21).normal(size=(3, 2, 256)).round(3)
TERNARY = RNG.integers(-1, 2, (6, 16)).astype(np.int8)
ASSIGNED = np.eye(4, dtype=bool)
PERM = np.array([1, 0, 3, 2])
RGBA = RNG.integers(0, 256, (3, 8, 8, 4)).astype(np.uint8)
PROBABILITIES = np.full((6, 3), 0.25) + 0.25 * np.eye(3)[LABELS]
CHOSEN = [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
TEXTS = ["a red apple", "an apple", "a pear"]
FEATURES, MORE_FEATURES = RNG.normal(size=(2, 8, 3)).round(3)
VIEWS = RNG.normal(size=(6, 2, 8)).round(3)

PART = FEATURES, np.array([0, 1] * 4)
MANY = FEATURES, np.stack([np.arange(8) % 2 == 0, np.arange(8) % 3 == 0], -1)


def tensor(x, dtype=torch.float64):
    "A tensor of its own."
    return torch.tensor(np.asarray(x), dtype=dtype)


X, Y = (torch.nn.functional.normalize(tensor(v), dim=-1) for v in (ROWS, OTHERS))
POSITIVES = torch.eye(6, dtype=torch.bool) | torch.eye(6, dtype=torch.bool).roll(1, 0)
IDS = torch.tensor([[3, 5, 9, 0], [3, 9, 0, 0]])
STATES = tensor(TUPLES)[:2, :, :4]
MASKS = tensor(RNG.random((2, 4, 4)) < 0.5)
CUBE = tensor(RNG.normal(size=(4, 4, 4)).round(3))
RUNS = pd.DataFrame(dict(rate=np.arange(1, 13) / 8, kind=["a", "b", "c"] * 4, score=RNG.normal(size=12)))
SCORES = {"a": ROWS[:, 0], "b": ROWS[:, 1]}


def clusterings():
    "Two centers."
    from brace_nb.foundations import Clustering

    own, width = torch.tensor([0, 1, 0, 1, 0, 1]), torch.tensor([0.2, 0.3], dtype=torch.float64)
    return Clustering(X[:2], own, width)


def config():
    "The default recipe."
    from brace_nb.foundations import TrainingConfig

    return TrainingConfig()


def scores_of_a_cube():
    "Three batches."
    from brace_nb.ndim import CubeScores

    return CubeScores([ROWS, OTHERS, ROWS[::-1].copy()])


def measure():
    "A measure of the family feature."
    from brace_nb.ndim import MEASURES

    return next(m for m in MEASURES.values() if m.family == "feature" and not m.only)


def dice(p, g):
    "A loss of masks."
    return ((p - g) ** 2).flatten(1).mean(1)


def generator():
    "A source of noise."
    return torch.Generator().manual_seed(0)


CLUSTERING, CONFIG = clusterings(), config()
TOKENS = [tensor(RNG.normal(size=(4, 5)), torch.float32), tensor(RNG.normal(size=(3, 5)), torch.float32)]
BACKGROUND = tensor(np.full((3, 3), 0.5), torch.float32)
UPRIGHT, LARGE = tensor(np.zeros(3), torch.float32), tensor(np.full(3, 0.8), torch.float32)
CENTERED = tensor(np.zeros((3, 2)), torch.float32)

PAIRS = torch.tensor([[0, 1], [2, 3], [4, 5]])
UNITS = tensor(RNG.normal(size=(2, 4, 3)).round(3))
PATH = tensor(RNG.normal(size=(4, 6, 3)).round(3))
LOW = RNG.uniform(0, 0.5, (2, 3, 2)).round(3)
FRAMES = tensor(np.concatenate([LOW, LOW + RNG.uniform(0.1, 0.4, (2, 3, 2)).round(3)], -1))

EXAMPLES = {
    "core": dict(
        as_array=dict(x=ROWS, name="x"),
        as_generator=dict(seed=3),
        as_tensor=dict(x=ROWS),
        check_finite=dict(t=X),
        count=dict(value=3, name="n"),
        nonnegative=dict(value=0.5, name="t"),
        normalize=dict(t=X),
        number=dict(value=0.5, name="t"),
        positive=dict(value=0.5, name="t"),
        random_rotation=dict(dim=3, seed=1),
        rows=dict(x=ROWS, name="x", least=2),
        seed=dict(value=1, name="seed"),
        several=dict(value=3, name="n"),
        share=dict(value=0.5, name="t"),
        size=dict(value=3, name="n"),
        sizes=dict(value=(3, 4), name="ks"),
        whole=dict(value=3, name="n"),
        widen=dict(t=X),
    ),
    "foundations": dict(
        static_embeddings=dict(tokens=[[0, 1], [2]], vectors=ROWS, weights=np.arange(1.0, 7.0)),
        token_weights=dict(tokens=[[0, 1], [1]], size=3, a=0.1),
        barlow_score=dict(x=X, y=Y, eps=1e-5),
        barlow_twins_loss=dict(x=X, y=Y, off_diagonal=0.01, eps=1e-5),
        batch_ids=dict(ids=np.arange(10), batch_size=4, seed=0, step=3),
        batch_statistics=dict(x=X, y=Y),
        box_shrink=dict(rgba=RGBA, factor=2),
        clean_text=dict(text="A word"),
        clip_loss=dict(x=X, y=Y, scale=10.0),
        clip_score=dict(x=X, y=Y),
        cluster=dict(features=X, sizes=(2, 3), temperature=0.2, alpha=10.0, seed=0, iterations=3, tries=1),
        concentration=dict(
            features=X, centroids=Y[:2], assignment=CLUSTERING.assignment, temperature=0.2, alpha=10.0
        ),
        contact_sheet=dict(rgba=RGBA, columns=2, gap=1, background=255),
        evidence_bound=dict(log_joint=X, q=tensor(np.full((6, 4), 0.25))),
        gaussian_entropy=dict(covariance=torch.eye(3, dtype=torch.float64)),
        info_nce=dict(x=X, y=Y, temperature=0.1, form="symmetric"),
        info_nce_score=dict(x=X, y=Y, temperature=0.1, form="moco", queue=Y),
        information_bottleneck=dict(views=tensor(TUPLES), beta=1.5, eps=1e-3),
        learning_rate=dict(step=3, config=CONFIG),
        mil_nce_loss=dict(x=X, y=Y, positives=POSITIVES, scale=10.0),
        mixed_precision=dict(config=CONFIG, device="cpu"),
        normalize_colors=dict(images=tensor(RNG.random((2, 3, 4, 4)), torch.float32)),
        on_background=dict(rgba=RGBA, background=255),
        pair_weights=dict(config=CONFIG),
        pairwise_clip_loss=dict(embeddings=torch.stack([X, Y]), scale=10.0, weights=np.ones((2, 2))),
        place=dict(rgba=RGBA, angle=UPRIGHT, scale=LARGE, shift=CENTERED, background=BACKGROUND),
        proto_loss=dict(x=X, rows=torch.arange(6), clustering=CLUSTERING, negatives=1, seed=0),
        proto_nce_loss=dict(x=X, keys=Y, rows=torch.arange(6), clusterings=[CLUSTERING], temperature=0.2),
        proto_score=dict(x=X, clustering=CLUSTERING),
        purushwalkam_gupta_loss=dict(x=X, positives=POSITIVES, scale=10.0),
        restyle=dict(rgba=RGBA, generator=0, config=CONFIG),
        siglip_loss=dict(x=X, y=Y, scale=10.0, bias=-10.0),
        siglip_score=dict(x=X, y=Y, scale=10.0, bias=-10.0),
        split_words=dict(text="A word"),
        supcon_loss=dict(x=X, y=Y, positives=POSITIVES, scale=10.0),
        to_float=dict(rgb=RGBA[..., :3]),
        train_bpe=dict(texts=TEXTS, vocab_size=270),
        weights_hash=dict(state={"w": X}),
    ),
    "codes": dict(
        active_bits=dict(codes=CODES),
        binarize_at_most=dict(v=POSITIVE, most=2),
        bit_strings=dict(codes=CODES),
        code_similarity=dict(a=CODES, b=MORE_CODES, measure="jaccard", dim=16),
        fit_code=dict(name="rotation", x=ROWS, size=1, seed=0),
        active_bits_loss=dict(x=X.abs(), bits=2.0),
        code_indices=dict(codes=CODES),
        code_recall=dict(images=CODES, texts=MORE_CODES, k=1),
        code_tokens=dict(codes=CODES),
        codes_from_indices=dict(indices=[[0, 2], [1]], dim=3),
        distillation_loss=dict(codes=X, embeddings=Y, scale=3.0, code_scale=2.0),
        fit_common_space=dict(images=X, texts=Y, pairs=torch.arange(6).expand(2, -1), spread=1.0, ridge=1.0),
        stored_bytes=dict(codes=CODES),
        alignment_loss=dict(x=X.abs(), y=Y.abs()),
        binarize=dict(v=POSITIVE),
        binarize_by_sorting=dict(v=tensor(POSITIVE)),
        certified_prefix=dict(v=POSITIVE, k=2),
        check_nonnegative=dict(v=POSITIVE),
        code_statistics=dict(codes=CODES),
        corners=dict(dim=3),
        cosine_similarity=dict(a=CODES, b=MORE_CODES),
        cost_of_first_descent=dict(v=POSITIVE),
        counterexample=dict(alpha=0.5, dim=4),
        counterexample_interval=dict(dim=4),
        distance_to_code=dict(v=POSITIVE, codes=POSITIVE > 0.5),
        hamming_similarity=dict(a=PACKED, b=PACKED, dim=16),
        interior_minimum_interval=dict(dim=4),
        itq_rotation=dict(x=ROWS, bits=2, iterations=2, seed=0),
        jaccard=dict(a=CODES, b=MORE_CODES),
        nearest=dict(queries=CODES, codes=MORE_CODES, k=2, measure="jaccard"),
        nearest_by_tables=dict(tables=BYTE_TABLES, codes=PACKED, k=2),
        float_similarity=dict(queries=ROWS, codes=CODES[:, :4], measure="hamming"),
        int8_rows=dict(x=ROWS),
        rescored=dict(queries=ROWS, vectors=OTHERS, rows=np.tile(np.arange(4), (6, 1)), k=2),
        nearest_by_product=dict(
            queries=torch.tensor(CODES), codes=torch.tensor(MORE_CODES), k=2, measure="jaccard", dim=16
        ),
        nearest_corner=dict(x=X.abs()),
        pack=dict(codes=CODES),
        pack_ternary=dict(codes=TERNARY),
        partial_sums=dict(v=POSITIVE),
        random_directions=dict(dim=4, bits=6, seed=0),
        rotation_codes=dict(x=ROWS, bits=6, seed=0, mean=ROWS.mean(0)),
        sign_codes=dict(x=ROWS, mean=ROWS.mean(0), rotation=np.eye(4)),
        similarity_by_product=dict(
            a=torch.tensor(CODES), b=torch.tensor(MORE_CODES), measure="jaccard", dim=16
        ),
        hits_interval=dict(hits=ROWS, draws=10),
        partner_hits=dict(forward=ROWS, backward=OTHERS, rows=np.array([0, 1, 2, 3, 0, 1]), k=1),
        stop_at_first_descent=dict(v=POSITIVE),
        ternarize=dict(v=ROWS),
        ternary_jaccard=dict(a=TERNARY, b=TERNARY),
        topk_codes=dict(x=ROWS, k=2),
        uniformity_loss=dict(x=X),
        unpack=dict(packed=PACKED, dim=16),
        unpack_ternary=dict(packed=np.packbits(np.hstack([TERNARY > 0, TERNARY < 0]), -1), dim=16),
    ),
    "ndim": dict(
        collision_probability=dict(n=3, batch_size=5),
        cosine_tail=dict(t=np.array([-0.5, 0.2]), dim=8),
        cross_entropy=dict(logits=X, target=tensor(np.full((6, 4), 0.25)), smoothing=0.1),
        cube=dict(xs=[ROWS, OTHERS, ROWS], measure="pairwise"),
        cube_blocks=dict(shape=(4, 4, 4), entries=8),
        cube_loss=dict(
            xs=[ROWS, OTHERS, ROWS], measure="pairwise", kind="slice", scale=2.0, label_smoothing=0.1
        ),
        exact_inputs=dict(batch_size=3, features=4, distribution="uniform", seed=0),
        feature_cube=dict(xs=[X, Y], m=measure(), entries=64),
        find_measure=dict(name="pairwise", n=3),
        gradient_cells=dict(n=3, batch_size=4, kind="slice"),
        is_increasing=dict(link="P / n"),
        mask_value=dict(partition=(2, 1), exponent=2),
        partitions=dict(n=4, batch_size=3),
        point_statistics=dict(points=ROWS),
        project=dict(xs=[X, Y], matrix=tensor(np.eye(4) * 2), projection="inv", single=0),
        rank_classes=dict(scores=SCORES, rho=0.9),
        rank_correlation=dict(scores=SCORES),
        region_mask=dict(n=3, batch_size=4),
        region_of=dict(index=[0, 1, 1]),
        region_sizes=dict(n=3, batch_size=4),
        region_weights=dict(regions=[(3,)], weights={(3,): 2.0}, scores=scores_of_a_cube()),
        safe_exponent=dict(n=4),
        score=dict(xs=[ROWS, OTHERS], measure="pairwise"),
        unit=dict(x=X),
        with_gram=dict(gram=np.eye(3), features=5, seed=0),
    ),
    "assignment": dict(
        option_table=dict(),
        agreement=dict(pred=ASSIGNED, truth=ASSIGNED[::-1].copy()),
        agreement_from_counts=dict(shared=np.array([2, 3]), cells=np.array([4, 4]), shape=(4, 4)),
        agreement_loss=dict(y=tensor(SQUARE), truth=tensor(ASSIGNED), temperature=0.5),
        agreement_loss_floor=dict(k=4, temperature=0.5),
        assign=dict(cost=COST, method="exact"),
        assign_many=dict(costs=[SQUARE, SQUARE[:2]], method="exact"),
        assignment_loss=dict(scores=COST, kind="combined_v2", method="exact"),
        attribution=dict(scores=COST, kind="v2", method="exact"),
        bertscore=dict(candidates=TOKENS, references=TOKENS),
        best_permutation=dict(scores=COST, method="exact"),
        break_ties=dict(x=COST, dtype="e4m3"),
        check_cost=dict(cost=COST),
        compare_methods=dict(
            methods={"exact": dict(method="exact")},
            x=tensor(COST),
            truth=torch.tensor(np.stack([ASSIGNED, ASSIGNED])),
        ),
        complete_permutation=dict(scores=SQUARE, matrix=ASSIGNED),
        corrupt_sentence=dict(text="one two three four", kind="replace", share=0.5, others=["x"], seed=0),
        cost_of_picking=dict(x=tensor(COST)),
        costs_to_scores=dict(cost=COST, mean=5.5, std=2.5, scale=0.3),
        cycle_lengths=dict(perm=PERM),
        cycle_sum=dict(perm=PERM),
        damage_correlation=dict(level=np.arange(6.0), score=ROWS.T, resamples=2, seed=0),
        derangements=dict(n=4),
        descent_direction=dict(scores=COST, kind="v2", method="exact"),
        diagonal_hit_rate=dict(scores=COST),
        dickman=dict(u=np.array([1.5, 2.5])),
        expectation_loss=dict(scores=tensor(COST), kind="longest", temperature=0.5),
        expected_cycle_sum=dict(n=4, fixed=1),
        expected_longest=dict(n=4, fixed=1),
        gumbel_rounds=dict(s=tensor(COST), temperature=0.1, noise=1.0, generator=generator()),
        is_valid=dict(matrix=ASSIGNED),
        judged_agreement=dict(measures=SCORES, judged=ROWS[:, 2], resamples=3, level=0.9, seed=0),
        kept_share=dict(dtype="bf16"),
        learning_rate_factor=dict(perm=PERM),
        line_faults=dict(matrix=ASSIGNED),
        line_loss=dict(y=tensor(SQUARE), truth=tensor(ASSIGNED)),
        lisascore=dict(candidates=TOKENS, references=TOKENS, method="exact"),
        longest_cycle_counts=dict(n=4, shortest=2),
        longest_cycle_probabilities=dict(n=4, fixed=1),
        longest_density=dict(x=np.array([0.3, 0.8])),
        match_batch=dict(cost=COST, sizes=[2, 2], mask="image", method="exact"),
        optimal_matrix=dict(x=tensor(COST)),
        precision_study=dict(cost=COST, formats=("bf16",), methods=("exact",)),
        priced_assignment=dict(cost=COST),
        quantize=dict(x=COST, dtype="bf16"),
        recurse=dict(x=tensor(COST), steps=3, factor=2.0),
        representable=dict(dtype="e4m3"),
        rounding_losses=dict(cost=COST, dtype="e4m3"),
        sample_matrices=dict(kind="uniform", shape=(2, 3, 3), seed=0),
        sinkhorn_plan=dict(s=tensor(COST), steps=3, coldest=0.1),
        soft_fixed_points=dict(scores=tensor(COST), temperature=0.5),
        solution_quality=dict(cost=SQUARE, pred=ASSIGNED, truth=ASSIGNED),
        straight_through_assignment=dict(
            cost=tensor(COST), method="gumbel", temperature=0.1, noise=1.0, steps=2, seed=0
        ),
        to_matrix=dict(rows=np.array([0, 1]), cols=np.array([1, 2]), shape=(4, 4)),
        total_score=dict(cost=SQUARE, matrix=ASSIGNED),
        upper_bound=dict(
            x=tensor(COST), rows=torch.arange(4).expand(2, 4), cols=torch.arange(4).expand(2, 4), sweeps=2
        ),
    ),
    "evaluation": dict(
        alignment=dict(x=ROWS, y=OTHERS, power=2.0),
        caption_groups=dict(captions=np.array(["a", "b", "a"]), owner=np.array([0, 0, 1]), images=2),
        centered_gram=dict(x=tensor(FEATURES), unbiased=True),
        chance_recall=dict(k=2, items=6, relevant=1),
        cka=dict(x=FEATURES, y=MORE_FEATURES, form="auto"),
        cka_matrix=dict(layers_a=[FEATURES, MORE_FEATURES], layers_b=[MORE_FEATURES]),
        cka_z=dict(value=0.3, n=8),
        class_embeddings=dict(prompt_embeddings=ROWS, groups=LABELS, classes=3),
        classify=dict(scores=PROBABILITIES, labels=LABELS, ks=(1, 2)),
        coordinate_share=dict(dim=4, bound=0.5),
        draw_split=dict(labels=LABELS, same=(), seed=0, shares=(0.6, 0.2)),
        effective_rank=dict(x=ROWS),
        embedding_ranks=dict(queries=ROWS, gallery=OTHERS, chunk=8),
        end_positions=dict(batch=IDS),
        expected_calibration_error=dict(probabilities=PROBABILITIES, labels=LABELS, bins=5),
        firing=dict(h=ROWS, firing_rate=0.5),
        hollow_gram=dict(x=tensor(FEATURES)),
        hsic=dict(x=FEATURES, y=MORE_FEATURES, form="auto"),
        instability=dict(sets=CHOSEN),
        invariance_score=dict(h=VIEWS, labels=LABELS, ks=(2,), firing_rate=0.4, permutations=2, seed=0),
        item_recall_at_k=dict(similarity=SQUARE, ks=(1, 2)),
        jaccard_stability=dict(sets=CHOSEN),
        knn_overlap=dict(x=ROWS, y=OTHERS, k=2, chunk=8),
        linear_probe=dict(train=PART, val=PART, test=PART, strengths=(0.1,), max_iter=500),
        mean_average_precision=dict(similarity=SQUARE),
        mean_similarity=dict(x=ROWS),
        label_auc=dict(x=ROWS, labels=LABELS),
        modality_accuracy=dict(x=ROWS, y=OTHERS, seed=0),
        modality_gap=dict(x=ROWS, y=OTHERS),
        movement=dict(before=ROWS, after=OTHERS, rigid=True),
        multilabel_probe=dict(train=MANY, val=MANY, test=MANY, strengths=(0.1,), max_iter=500),
        ndcg_at_k=dict(similarity=SQUARE, ks=(1, 2), gains=SQUARE),
        near_and_far=dict(distances=np.arange(6.0), k=2),
        nogueira_stability=dict(sets=CHOSEN, vocabulary=10),
        null_sd=dict(n=8),
        participation_ratio=dict(x=ROWS),
        permuted_cka=dict(x=FEATURES, y=MORE_FEATURES, permutations=2, seed=0),
        pixel_features=dict(images=RGBA, size=4),
        precision_at_k=dict(similarity=SQUARE, ks=(1, 2)),
        probe_controls=dict(train=PART, val=PART, test=PART, seed=0, strengths=(0.1,)),
        procrustes=dict(before=ROWS, after=OTHERS),
        ranks=dict(similarity=SQUARE, chunk=8),
        recall_at_k=dict(similarity=SQUARE, ks=(1, 2)),
        reliability=dict(probabilities=PROBABILITIES, labels=LABELS, bins=5),
        retrieval_report=dict(similarity=SQUARE, relevant=[0, 1, 2, 3], ks=(1, 2)),
        same_text=dict(texts=TEXTS, owner=np.array([0, 0, 1])),
        separation=dict(x=ROWS, y=OTHERS),
        simplex_uniformity=dict(n=3, t=2.0),
        spearman_interval=dict(x=ROWS[:, 0], y=ROWS[:, 1], resamples=20, level=0.9, seed=0, groups=LABELS),
        sphere_uniformity=dict(dim=4, t=2.0),
        summarize_ranks=dict(rank=np.array([1, 3, 2]), ks=(1, 2)),
        target_invariance=dict(h=VIEWS, labels=LABELS, firing_rate=0.4),
        token_distances=dict(embeddings=ROWS, seen=np.array([0, 2, 3]), center="mean"),
        token_scores=dict(near=CHOSEN, far=CHOSEN, majority=0.5),
        trajectory=dict(rgba=RGBA, name="scale"),
        tuple_auc=dict(x=TUPLES, chunk=8),
        tuple_similarity=dict(x=ROWS, owner=LABELS),
        uniformity=dict(x=ROWS, t=2.0, chunk=8),
        word_features=dict(texts=TEXTS),
        zero_shot=dict(image_embeddings=ROWS, class_embeddings=OTHERS[:3], labels=LABELS, scale=10.0),
    ),
    "grounding": dict(
        match_detections=dict(cost=tensor(COST), sizes=[2, 2], matcher="exact", dtype="fp32", seed=0),
        render_object_scenes=dict(rgba=RGBA, count=2, seed=0, objects=(1, 2), sides=(4, 8), side=16),
        to_centers=dict(boxes=FRAMES),
        to_corners=dict(boxes=FRAMES),
        as_linear=dict(embedding=torch.nn.Embedding(5, 3)),
        best_constant=dict(masks=MASKS, loss=dice, points=5),
        cube_log=dict(logits=CUBE, errors="one_hot", variance=True),
        distance_weights=dict(xs=[X, Y, X], measure="sum_norm", scale=5.0),
        encode_in_chunks=dict(encoder=torch.nn.Identity(), x=X, chunk=4),
        factor_columns=dict(table=RUNS, factors=["rate", "kind"]),
        factor_importance=dict(table=RUNS, factors=["rate", "kind"], outcome="score", bootstraps=2, trees=3),
        first_and_bad=dict(logits=CUBE),
        level_correlations=dict(table=RUNS, factors=["rate", "kind"], outcome="score", bootstraps=3),
        least_squares_probe=dict(train=X, train_labels=LABELS, test=Y, test_labels=LABELS, ridge=1.0),
        one_hot_labels=dict(n=3, batch_size=4),
        pair_recall=dict(embedded={"a": X, "b": Y}, ks=(1, 3)),
        region_errors=dict(logits=CUBE, labels=CUBE * 0.5),
        region_name=dict(partition=(2, 1)),
        region_table=dict(history=[{"step": 0, "share 2": 0.5}], kind="share"),
        stock_validation=dict(first=X, second=Y, scale=5.0, batch_size=3),
        text_tokens=dict(texts=TEXTS, vocab_size=300, context_length=8),
        view_patterns=dict(present=torch.ones(3, 4, dtype=torch.bool)),
        bridge_memory=dict(name="linear", batch_size=2, length=3, width=4, vocabulary=5, bytes_each=4),
        cosines_with_frozen=dict(features=[X, Y]),
        cube_summary=dict(features=[X, Y], measure="pairwise"),
        dice_loss=dict(p=MASKS, g=MASKS, eps=1.0),
        eot_by_id=dict(ids=IDS, end=9),
        eot_by_largest_id=dict(ids=IDS),
        eot_by_similarity=dict(x=STATES, end=X[0]),
        eot_gumbel=dict(x=STATES, end=X[0], temperature=1.0, noise=tensor(np.zeros((2, 3)))),
        gumbel_noise=dict(shape=(2, 3), generator=0),
        learn_weight=dict(first=ROWS[:, 0], second=ROWS[:, 1], learning_rate=0.1, start=0.5, form="variance"),
        mask_scores=dict(prediction=MASKS > 0, truth=MASKS),
        one_hot=dict(ids=IDS, vocabulary=10),
        prequential_losses=dict(
            features=X, targets=torch.tensor(LABELS), classes=3, batch_size=3, learning_rate=0.1, updates=1
        ),
        render_scenes=dict(rgba=RGBA, count=2, seed=0, objects=(1, 2), scale=(0.25, 0.5), grid=4),
        rows_at=dict(x=STATES, position=torch.tensor([0, 2])),
        straight_through_choice=dict(logits=X, temperature=1.0, noise=tensor(np.zeros((6, 4)))),
        trim_padding=dict(ids=IDS),
        analogy_hits=dict(x=X, pairs=PAIRS, steps=Y),
        contrasts=dict(own=UNITS, other=UNITS * 0.5, scale=5.0),
        distillation_loss=dict(own=X, teacher=Y, scale=5.0),
        elbow=dict(losses=tensor(np.linspace(3, 1, 12) ** 2)),
        parallelism=dict(x=X, pairs=PAIRS),
        path_movement=dict(path=PATH),
        random_walk=dict(path=PATH, seed=0),
        relation_of=dict(boxes=tensor(np.linspace(0, 1, 24).reshape(3, 2, 4))),
        relation_pairs=dict(names=["man cook", "woman cook"], relation="gender"),
        render_relations=dict(
            rgba=RGBA, high=torch.tensor([True, False, True]), count=2, seed=0, scale=0.4, grid=4
        ),
        ridge_map=dict(x=X, y=Y, penalties=(0.1, 1.0)),
        samples_ratio=dict(sizes=[10, 20, 40], curve=[1.0, 2.0, 3.0], reference=[2.0, 3.0, 4.0]),
    ),
}

# Public functions that are not called, and why
LEFT_OUT = {
    "core": {
        "atomic_path check_expansion check_seal check_sums existing_file file_digest malformed": "files",
        "held_alone naming open_matrix write_sums": "files",
        "read_arrays read_json read_yaml reading save_tensors write_atomic": "files",
        "ArrayRule array booleans finite floats function ids integers labels list_of many one_of": "rules",
        "tensor tensors text within": "rules; the other parts are called with what they refuse",
        "broadcast one_type parallel_map weights_from": "take what the parts have checked",
        "checked expect_fail like deferred_interrupt thread_count": "no argument of a caller's data",
        "in_precision memory_told mixed_precision_on rows_by_memory": "no argument of a caller's data",
        "train": "trains; its arguments are functions",
        "obstacle portable_environment use_one_instruction_set": "set up a process",
        "executor_of last_words submitting wait_for": "talk to a cluster",
        "extra_of install_words tell_extras": "names of packages",
        "printable": "takes any text",
    },
    "foundations": {
        "data_folder load_coco load_embeddings load_emoji load_encoder load_flickr30k load_shards "
        "photo_tuples read_embeddings read_files save_encoder": "files",
        "emoji_embeddings emoji_places load_glosses load_stamps read_parquet read_pictures": "files",
        "embed_glosses token_vectors": "models",
        "imagenet_class_names load_cifar10 load_class_folders load_clip load_coco_objects load_coco_views "
        "load_sentence_model "
        "load_detr load_embedding_shards load_wmt read_coco_cn read_coco_es read_picture read_pickled_data "
        "read_sheet read_squares read_weights with_captions": "files",
        "batch_by_memory embed_pictures embed_texts fast_inference": "models",
        "build_encoder build_towers encode_tokens import_open_clip make_optimizer tuple_loss": "models",
        "train_encoder train_objective training_ids": "train, or need a data set",
        "with_statistics": "takes an encoder",
    },
    "codes": {
        "embed_raw raw_items user_embeddings": "files",
        "check_preset ways_to_code": "parts of `encode_files`",
        "binarize_file encode_files load_codes load_heads named_pictures report_lines save_codes "
        "read_folder search_files training_pairs untrained_heads": "files",
        "add_code_commands": "a command line",
        "code_facts code_steps encoder_hits unpushed_distance": "needs trained heads",
        "code_candidates": "makes encoders, which check their options",
        "emoji_pairs gloss_pairs": "files",
        "project_on_device": "writes into the caller's memory",
    },
    "ndim": {},
    "assignment": {
        "arguments_of": "names, which `assign` checks",
        "inverse_document_frequency sentence_encoder": "need a sentence encoder",
        "load_networks read_judgements save_networks": "files",
        "train_network train_networks train_six_layers": "train",
    },
    "evaluation": {
        "compare_models layer_features": "models",
        "baseline_embeddings": "any number of parts, without names: tests/test_evaluation_baselines.py",
        "evaluate_files report_text": "files",
    },
    "grounding": {
        "encode_inputs text_student chosen_tokens guess_losses": "models",
        "read_tokens translations": "models",
        "bytes_for_backward tell": "a computation, scenes",
        "detect detection_scores objects_of own_costs": "a detector, its answers, its scenes",
        "average_precision box_overlap detection_costs detection_losses generalized_overlap weighted_loss": (
            "take what a reader of scenes, a detector and a matcher give"
        ),
        "emoji_scenes": "files",
        "detector_study train_detector": "train",
        "hide_words language_of": "draws of a generator, a data set",
        "distil_encoder guess_language teach_language train_students training_path": "train",
        "read_aligned read_study read_views sweep_file sweep_parts": "files",
        "embed_table load_table_encoders put_weights read_cells train_table": (
            "files; `tests/test_grounding_own_table.py` gives them wrong ones"
        ),
        "probe_text report_page retrieval_rows score_of split_items table_text weights_of": (
            "parts of `train_table`"
        ),
        "chunk_by_memory default_encoders embed_views encode_batch objective_losses mean_outcomes "
        "run_outcomes": ("models and their tuples"),
        "draw_run sweep train_encoders train_together": "train, or plan trainings",
        "train_bags train_decoder train_noisy_encoders train_noisy_side_by_side train_third_encoder "
        "train_whole_model validate_noisy_encoders": "train",
    },
}
