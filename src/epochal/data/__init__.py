"""Datasets, chains of pipes, and loaders: how samples become batches."""

from epochal.data.batching import Batch, BucketByLength, Pack, Pad, PadCollate
from epochal.data.caching import Cache, Materialise
from epochal.data.chain import Chain, chain
from epochal.data.datasets import ListDataset, Tensors
from epochal.data.order_pipes import (
    Mix,
    Repeat,
    Sample,
    ShardByRank,
    Shuffle,
    ShuffleBuffer,
    Skip,
    Slice,
    SplitByWorker,
    Take,
)
from epochal.data.pipe import Pass, Pipe
from epochal.data.sources import (
    Arrays,
    Csv,
    Files,
    HuggingFace,
    ImageFolder,
    Items,
    Jsonl,
    Parquet,
    Safetensors,
    Text,
)
from epochal.data.transforms import Filter, FlatMap, Map
from epochal.data.webdataset import WebDataset

__all__ = [
    "Arrays",
    "Batch",
    "BucketByLength",
    "Cache",
    "Chain",
    "Csv",
    "Files",
    "Filter",
    "FlatMap",
    "HuggingFace",
    "ImageFolder",
    "Items",
    "Jsonl",
    "ListDataset",
    "Map",
    "Materialise",
    "Mix",
    "Pack",
    "Pad",
    "PadCollate",
    "Parquet",
    "Pass",
    "Pipe",
    "Repeat",
    "Safetensors",
    "Sample",
    "ShardByRank",
    "Shuffle",
    "ShuffleBuffer",
    "Skip",
    "Slice",
    "SplitByWorker",
    "Take",
    "Tensors",
    "Text",
    "WebDataset",
    "chain",
]
